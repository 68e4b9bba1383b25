package tenant

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"vgpud/gpu/corpus"
)

// scaled is a kernel of the corpus at the size of a real program's: it takes about a millisecond or
// more on a large GPU. Its results are compared with the original's, not checked for correctness.
type scaled struct {
	name, kernel, entry string
	grid, block         [3]uint32
	shared              uint32
	args                []any // each is a buffer, uint32, int, float32, float64 or []byte
}

// buffer is GPU memory of the given size, filled with a repeated pattern.
type buffer struct {
	bytes uint64
	fill  func(rng *rand.Rand) []byte // nil stands for zeros
}

// patternBytes is the length of a pattern.
const patternBytes = 4 << 20

// reals returns random float32 values from 0.5 to 1.5.
func reals(rng *rand.Rand) []byte {
	b := make([]byte, 0, patternBytes)
	for len(b) < patternBytes {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(0.5+rng.Float32()))
	}
	return b
}

// numbers returns random uint32 values.
func numbers(rng *rand.Rand) []byte {
	b := make([]byte, 0, patternBytes)
	for len(b) < patternBytes {
		b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
	}
	return b
}

// small returns random uint32 values below 10.
func small(rng *rand.Rand) []byte {
	b := make([]byte, 0, patternBytes)
	for len(b) < patternBytes {
		b = binary.LittleEndian.AppendUint32(b, rng.Uint32N(10))
	}
	return b
}

// zeros is for memory that a kernel adds to, which differs from launch to launch.
func zeros(*rand.Rand) []byte { return make([]byte, patternBytes) }

const (
	mega = 1 << 20
	giga = 1 << 30
)

// squareGrid and squareBlock cover a square with a side of 16384 points of 4 bytes by blocks of 16
// × 16.
var squareGrid, squareBlock = [3]uint32{1024, 1024, 1}, [3]uint32{16, 16, 1}

func row(blocks, threads uint32) (grid, block [3]uint32) {
	return [3]uint32{blocks, 1, 1}, [3]uint32{threads, 1, 1}
}

// catalog lists every scaled kernel.
var catalog = []scaled{
	line("vecadd", "vecadd", "vecadd", 1<<20, 256, buffer{giga, reals}, buffer{giga, reals}, buffer{giga, nil}, 1<<28),
	line("triad", "triad", "triad", 1<<18, 256, buffer{giga, nil}, buffer{giga, reals}, buffer{giga, reals}, float32(3), 1<<26),
	line("triad_f64", "triad", "triad_f64", 1<<19, 256, buffer{giga, nil}, buffer{giga, nil}, buffer{giga, nil}, 3.0, 1<<27),
	square("stencil", "stencil", "stencil9", buffer{giga, reals}, buffer{giga, nil}, 16384, 16384, float32(0.25), float32(0.125), float32(0.0625)),
	{"matmul", "matmul", "matmul", [3]uint32{256, 256, 1}, squareBlock, 0,
		[]any{buffer{64 * mega, reals}, buffer{64 * mega, reals}, buffer{64 * mega, nil}, 4096}},
	line("nbody", "nbody", "nbody", 8192, 128, buffer{16 * mega, reals}, buffer{16 * mega, nil}, float32(0.01), 8192),
	line("blackscholes", "blackscholes", "black_scholes", 1<<19, 256, buffer{giga / 2, reals}, buffer{giga / 2, reals}, buffer{giga / 2, reals},
		buffer{giga / 2, nil}, buffer{giga / 2, nil}, float32(0.02), float32(0.3), 1<<27),
	{"mandelbrot", "mandelbrot", "mandelbrot", [3]uint32{256, 256, 1}, squareBlock, 0,
		[]any{buffer{32 * mega, nil}, -2.0, -1.25, 2.5 / 4096, 4096, 4096, 400}},
	line("md5", "md5", "md5_search", 1<<19, 64, make([]byte, 16), uint32(1<<27), buffer{4, nil}),
	line("kmeans", "kmeans", "kmeans_assign", 1<<16, 256, buffer{giga, reals}, buffer{16 * 16 * 4, reals}, buffer{64 * mega, nil}, 1<<24, 16, 16),
	line("nearest", "nearest", "nearest", 1<<14, 256, buffer{32 * mega, reals}, buffer{16 * mega, nil}, buffer{8, numbers}, float32(0.1), float32(0.2), 1<<22),
	{"transpose", "transpose", "transpose", [3]uint32{512, 512, 1}, [3]uint32{32, 8, 1}, 32 * 33 * 4,
		[]any{buffer{giga, numbers}, buffer{giga, nil}, 16384, 16384, 33}},
	{"nnlayer", "nnlayer", "dense", [3]uint32{16, 1024, 1}, [3]uint32{64, 1, 1}, 0,
		[]any{buffer{4 * mega, reals}, buffer{4 * mega, reals}, buffer{4096, reals}, buffer{4 * mega, nil}, 1024, 1024, 0}},
	square("hotspot", "hotspot", "hotspot", buffer{giga, reals}, buffer{giga, reals}, buffer{giga, nil}, 16384, 16384,
		float32(0.1), float32(2), float32(2), float32(3), float32(80)),
	square("srad_coefficients", "srad", "srad_coefficients", buffer{giga, reals}, buffer{4, reals}, buffer{giga, nil}, 16384, 16384),
	square("srad_update", "srad", "srad_update", buffer{giga, reals}, buffer{giga, reals}, buffer{giga, nil}, 16384, 16384, float32(0.5)),
	line("pathfinder", "pathfinder", "pathfinder", 1<<24/216+1, 256, buffer{20 * 64 * mega, small}, buffer{64 * mega, small}, buffer{64 * mega, nil}, 1<<24, 0, 20),
	{"reduce", "reduce", "reduce", [3]uint32{1 << 16, 1, 1}, [3]uint32{256, 1, 1}, 1024,
		[]any{buffer{2 * giga, reals}, buffer{mega, nil}, 1 << 29}},
	line("histogram", "histogram", "histogram", 1<<14, 256, buffer{giga, numbers}, buffer{1024, zeros}, 1<<28),
	line("spin", "throttle", "throttle", 512, 32, buffer{64 << 10, nil}, uint32(100), uint32(1)), // for a GPU in software
	line("throttle", "throttle", "throttle", 1<<16, 256, buffer{64 * mega, nil}, uint32(1000), uint32(1)),
}

func line(name, kernel, entry string, blocks, threads uint32, args ...any) scaled {
	grid, block := row(blocks, threads)
	return scaled{name, kernel, entry, grid, block, 0, args}
}

func square(name, kernel, entry string, args ...any) scaled {
	return scaled{name, kernel, entry, squareGrid, squareBlock, 0, args}
}

// Sliceable reports whether all blocks of a scaled kernel do the same work, so that running its
// first blocks repeatedly costs as much as slices of it. The blocks of reduce and histogram divide
// all of the input among themselves, however few they are.
func Sliceable(name string) bool {
	return !slices.Contains([]string{"mandelbrot", "reduce", "histogram"}, name)
}

// Scaled returns the names of the kernels that [Job.Scaled] may have.
func Scaled() (names []string) {
	for _, s := range catalog {
		if s.name != "spin" {
			names = append(names, s.name)
		}
	}
	return names
}

// scaledByName returns a kernel and its module's text.
func scaledByName(name string) (*scaled, string, error) {
	i := slices.IndexFunc(catalog, func(s scaled) bool { return s.name == name })
	if i < 0 {
		return nil, "", fmt.Errorf("no scaled kernel %q: want one of %q", name, Scaled())
	}
	s := &catalog[i]
	k, ok := corpus.ByName(s.kernel)
	if !ok {
		return nil, "", fmt.Errorf("the corpus has no kernel %q", s.kernel)
	}
	return s, k.PTX(corpus.SM80), nil
}

// place allocates and fills the kernel's memory, and returns the arguments and the memory that the
// kernel writes.
func (s *scaled) place(ctx context.Context, m machine) (args [][]byte, results []result, err error) {
	for _, a := range s.args {
		arg, err := argument(ctx, m, a)
		if err != nil {
			return nil, nil, err
		}
		if b, ok := a.(buffer); ok && b.fill == nil {
			results = append(results, result{binary.LittleEndian.Uint64(arg), b.bytes})
		}
		args = append(args, arg)
	}
	return args, results, nil
}

func loadScaled(ctx context.Context, m machine, name string) (*job, error) {
	s, text, err := scaledByName(name)
	if err != nil {
		return nil, err
	}
	return loadScaledOf(ctx, m, s, text)
}

// loadScaledOf loads a kernel of a module, and fills its memory.
func loadScaledOf(ctx context.Context, m machine, s *scaled, text string) (*job, error) {
	mod, err := m.load(ctx, text)
	if err != nil {
		return nil, err
	}
	f, err := mod.function(ctx, s.entry)
	if err != nil {
		return nil, err
	}
	args, results, err := s.place(ctx, m)
	if err != nil {
		return nil, err
	}
	params, err := f.params(args...)
	if err != nil {
		return nil, err
	}
	return &job{results: results, steps: []command{{function: f, grid: s.grid, block: s.block, shared: s.shared, params: params}}}, nil
}

// argument returns the encoding of a parameter. It allocates and fills buffers.
func argument(ctx context.Context, m machine, a any) ([]byte, error) {
	switch a := a.(type) {
	case int:
		return u32(uint32(a)), nil
	case uint32:
		return u32(a), nil
	case float32:
		return u32(math.Float32bits(a)), nil
	case float64:
		return u64(math.Float64bits(a)), nil
	case []byte:
		return a, nil
	}
	b := a.(buffer)
	at, err := m.alloc(ctx, b.bytes)
	if err != nil {
		return nil, err
	}
	if b.fill != nil {
		pattern := b.fill(rand.New(rand.NewPCG(1, b.bytes)))
		for done := uint64(0); done < b.bytes; {
			n := min(uint64(len(pattern)), b.bytes-done)
			if err := m.copyIn(ctx, at+done, pattern[:n]); err != nil {
				return nil, err
			}
			done += n
		}
	}
	return u64(at), nil
}
