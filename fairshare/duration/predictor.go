package duration

import "time"

// Kernel identifies a kernel by its code: a hash of its module's content and its name.
type Kernel uint64

// Features are what a launch's duration is predicted from: "The model only needs four parameters:
// grid size, CTA size, input size, and the size of used shared memory, which can be easily obtained
// given a kernel invocation" (FLEP §4.2).
type Features struct {
	// Blocks is the launch's number of thread blocks, and Threads the number of threads of each.
	Blocks  uint64
	Threads uint32
	// Input is the size in bytes of the allocations that its pointer arguments name.
	Input uint64
	// Shared is the size in bytes of a block's shared memory, static and dynamic.
	Shared uint32
}

// Predictor predicts durations and eviction costs. It is used from one goroutine.
type Predictor interface {
	// Predict returns how long a launch is going to run alone, from its first to its last block, or
	// zero if that is unknown.
	Predict(k Kernel, f Features) time.Duration
	// Observe adds how long a launch ran, on the GPU's clock and summed over the runs between
	// evictions. A launch that failed must not be observed.
	Observe(k Kernel, f Features, took time.Duration)
	// EvictionCost returns what evicting a launch of the kernel and launching it again is going to
	// cost, or zero if that is unknown.
	EvictionCost(k Kernel) time.Duration
	// ObserveEviction adds what an eviction cost.
	ObserveEviction(k Kernel, cost time.Duration)
	// Error returns the mean relative error of the predictions, over all observed launches that
	// could have been predicted just before, and the number of these launches.
	Error() (ratio float64, launches uint64)
}
