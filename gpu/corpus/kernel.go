package corpus

import (
	"embed"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

//go:embed ptx/*.ptx
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

// Size is the amount of work of a case, in thread-instructions: instructions times the threads that
// execute them.
type Size int

// The sizes, named as in FLEP §6.1.
const (
	Trivial Size = iota // about 10⁵, in a few blocks
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

// Kernel is one program of the corpus: a source file with one or more entry points, and a function
// that makes cases.
type Kernel struct {
	// Name identifies the kernel and is the base name of its files.
	Name string

	build func(size Size, rng *rand.Rand) *Case
}

// PTX returns the kernel compiled for arch. clang generates the same PTX for every architecture of
// the corpus, except for the .target directive, which compile.sh checks. So there is one file, for
// sm_80, and PTX rewrites its directive.
func (k Kernel) PTX(arch Arch) string {
	text, err := files.ReadFile("ptx/" + k.Name + ".ptx")
	if err != nil { // a test checks that every kernel has its file
		panic(fmt.Sprintf("corpus: a file is missing: %v", err))
	}
	return strings.Replace(string(text), ".target "+string(SM80)+"\n", ".target "+string(arch)+"\n", 1)
}

// Case returns the case of the given size with inputs from seed. Equal arguments give equal cases.
// It computes the reference, so a large case takes tens of milliseconds. It panics for a size that
// [Sizes] does not list.
func (k Kernel) Case(size Size, seed uint64) *Case {
	if !slices.Contains(Sizes(), size) {
		panic(fmt.Sprintf("corpus: case of %s: no such size: %v", k.Name, size))
	}
	// Kernels with equal seeds get different inputs.
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
