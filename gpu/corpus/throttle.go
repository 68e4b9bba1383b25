package corpus

import "math/rand/v2"

// LoGA's Throttle benchmark (§5.2) issues kernels of a set length and sleeps a
// set time between them. The length is set here, by the iterations of a loop
// that neither reads a clock nor touches memory; the sleep is the caller's.
var throttle = Kernel{
	Name:    "throttle",
	Summary: "spins a given number of loop iterations: a kernel of any length (LoGA §5.2)",
	Entries: []string{"throttle"},
	build: func(size Size, rng *rand.Rand) *Case {
		return Throttle(ThrottleConfig{
			Blocks:     choose(size, 2, 8, 32),
			Threads:    128,
			Iterations: choose(size, 100, 600, 2000),
			Start:      rng.Uint32(),
		})
	},
}

// ThrottleConfig sets the length of a throttle kernel. Its length grows linearly
// with Iterations, by ThrottleLoopInstructions instructions a thread for each.
type ThrottleConfig struct {
	Blocks     int    // blocks of the grid
	Threads    int    // threads a block
	Iterations int    // of the loop, the same in every thread
	Start      uint32 // what the threads' values are derived from
}

// ThrottleLoopInstructions is how many PTX instructions a thread executes for
// each of [ThrottleConfig.Iterations].
const ThrottleLoopInstructions = 4

// Throttle makes a throttle kernel's case. Its reference takes no longer for
// more iterations.
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

// lcgJump returns what n steps of x ← 1664525·x + 1013904223 do to x at once: a
// multiplication and an addition, found by repeated squaring.
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
