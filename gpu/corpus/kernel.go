package corpus

import (
	"embed"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

//go:embed src/*.cu ptx/*.ptx
var files embed.FS

// Arch is a GPU architecture that PTX is written for, as the .target directive spells it.
type Arch string

// The architectures that the corpus serves.
const (
	SM80 Arch = "sm_80" // Ampere
	SM90 Arch = "sm_90" // Hopper
)

// Arches returns the architectures that the corpus serves, oldest first.
func Arches() []Arch { return []Arch{SM80, SM90} }

// Size is how much work a case holds. The figures are thread-instructions:
// instructions times the threads that execute them.
type Size int

// The sizes, named as in FLEP §6.1.
const (
	Trivial Size = iota // about 10⁵: a handful of blocks
	Small               // 10⁶ to 5·10⁶
	Large               // about 2·10⁷ to 5·10⁷
)

// Sizes returns all sizes, least work first.
func Sizes() []Size { return []Size{Trivial, Small, Large} }

// String returns "trivial", "small" or "large".
func (s Size) String() string {
	switch s {
	case Trivial:
		return "trivial"
	case Small:
		return "small"
	case Large:
		return "large"
	}
	return fmt.Sprintf("Size(%d)", int(s))
}

// ParseSize is the inverse of [Size.String].
func ParseSize(text string) (Size, error) {
	for _, s := range Sizes() {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("size %q: want trivial, small or large", text)
}

// Kernel is one program of the corpus: a source file with one or more entry
// points, and a way to make cases for it.
type Kernel struct {
	// Name identifies the kernel and is its files' base name.
	Name string
	// Summary says in one line what it computes and what it exercises.
	Summary string
	// Entries are the names of its .entry functions.
	Entries []string

	build func(size Size, rng *rand.Rand) *Case
}

// Source returns the kernel's CUDA C.
func (k Kernel) Source() string {
	return mustRead("src/" + k.Name + ".cu")
}

// PTX returns the kernel compiled for arch. nvcc makes the same PTX for every architecture in
// the corpus, except for the .target directive (compile.sh fails if it does not). So one file
// for sm_80 is kept and its directive is rewritten here.
func (k Kernel) PTX(arch Arch) string {
	text := mustRead("ptx/" + k.Name + ".ptx")
	return strings.Replace(text, ".target "+string(SM80)+"\n", ".target "+string(arch)+"\n", 1)
}

// Case makes the case of the given size whose inputs follow from seed: equal
// arguments give equal cases. The references run here, so a large case takes
// tens of milliseconds. It panics on a size that [Sizes] does not list.
func (k Kernel) Case(size Size, seed uint64) *Case {
	if !slices.Contains(Sizes(), size) {
		panic(fmt.Sprintf("corpus: case of %s: no such size: %v", k.Name, size))
	}
	// Kernels of equal seed still get unrelated inputs.
	stream := fnv.New64a()
	stream.Write([]byte(k.Name))
	c := k.build(size, rand.New(rand.NewPCG(seed, stream.Sum64())))
	c.Kernel, c.Size, c.Seed = k.Name, size, seed
	return c
}

// All returns every kernel, ordered by name.
func All() []Kernel { return slices.Clone(catalog) }

// ByName returns the kernel called name.
func ByName(name string) (Kernel, bool) {
	i := slices.IndexFunc(catalog, func(k Kernel) bool { return k.Name == name })
	if i < 0 {
		return Kernel{}, false
	}
	return catalog[i], true
}

// mustRead reads an embedded file. That every kernel has its files is tested,
// so a missing one is a defect of the build.
func mustRead(path string) string {
	b, err := files.ReadFile(path)
	if err != nil {
		panic(fmt.Sprintf("corpus: a file is missing: %v", err))
	}
	return string(b)
}
