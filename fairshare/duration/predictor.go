package duration

import "time"

// Kernel names a kernel by its code: a hash of its module's content and its name.
type Kernel uint64

// Features are what a launch's duration is foreseen by: "The model only needs four
// parameters: grid size, CTA size, input size, and the size of used shared memory,
// which can be easily obtained given a kernel invocation" (FLEP §4.2).
type Features struct {
	// Blocks is how many thread blocks the launch has in all, and Threads how many
	// threads each of them.
	Blocks  uint64
	Threads uint32
	// Input is the bytes of the allocations that its pointer arguments name.
	Input uint64
	// Shared is the bytes of shared memory a block has, static and dynamic.
	Shared uint32
}

// Predictor foresees. It is used from one goroutine.
type Predictor interface {
	// Predict is how long a launch is going to run alone, from its first to its
	// last block; zero if that can't be said.
	Predict(k Kernel, f Features) time.Duration
	// Observe takes in how long a launch ran, on the GPU's clock and summed over
	// the runs that evictions made of it. One that did not end well must not be
	// observed.
	Observe(k Kernel, f Features, took time.Duration)
	// EvictionCost is what evicting a launch of the kernel and launching it again
	// is going to cost; zero if that can't be said.
	EvictionCost(k Kernel) time.Duration
	// ObserveEviction takes in what an eviction cost.
	ObserveEviction(k Kernel, cost time.Duration)
	// Error is the mean over all launches that were observed and could have been
	// predicted just before, of how far the prediction was off as a part of what
	// the launch took; and how many these were.
	Error() (ratio float64, launches uint64)
}
