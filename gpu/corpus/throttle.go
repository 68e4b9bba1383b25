package corpus

import "math/rand/v2"

// throttle spins for a given number of loop iterations. LoGA's Throttle benchmark (§5.2) issues
// kernels of a given length and sleeps for a given time between them. Here the length is set by the
// iterations of a loop that neither reads a clock nor accesses memory; the caller sleeps.
var throttle = Kernel{
	Name: "throttle",
	build: func(size Size, rng *rand.Rand) *Case {
		return Throttle(ThrottleConfig{
			Blocks:     choose(size, 2, 8, 32),
			Threads:    128,
			Iterations: choose(size, 100, 600, 2000),
			Start:      rng.Uint32(),
		})
	},
}

// ThrottleConfig sets the length of a throttle kernel, which grows linearly with Iterations: each
// adds ThrottleLoopInstructions instructions per thread.
type ThrottleConfig struct {
	Blocks     int    // blocks of the grid
	Threads    int    // threads per block
	Iterations int    // of the loop, equal for all threads
	Start      uint32 // seed of the threads' values
}

// ThrottleLoopInstructions is the number of PTX instructions that a thread executes per iteration.
const ThrottleLoopInstructions = 4

// Throttle returns a case of the throttle kernel. The time of its reference does not depend on the
// iterations.
func Throttle(config ThrottleConfig) *Case {
	multiplier, increment := lcgJump(uint32(config.Iterations))
	out := make([]uint32, config.Blocks*config.Threads)
	for i := range out {
		out[i] = (config.Start^uint32(i))*multiplier + increment
	}
	return &Case{
		Kernel:  "throttle",
		Buffers: []Buffer{output("out", out)},
		Steps: []Launch{launch("throttle", config.Blocks, config.Threads,
			ptr("out"), u32(uint32(config.Iterations)), u32(config.Start))},
	}
}

// lcgJump returns the multiplier and the increment of n steps of x ← 1664525·x + 1013904223,
// computed by repeated squaring.
func lcgJump(n uint32) (multiplier, increment uint32) {
	multiplier = 1
	m, a := uint32(1664525), uint32(1013904223)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			multiplier, increment = multiplier*m, increment*m+a
		}
		m, a = m*m, a*m+a
	}
	return multiplier, increment
}
