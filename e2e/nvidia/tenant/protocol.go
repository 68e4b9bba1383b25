package tenant

import (
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/ipc"
)

// Setup is the first line that a tenant reads.
type Setup struct {
	Name string `json:"name"`
	// Socket is the socket of the tenant's virtual GPU. Without one, the tenant uses GPU as a
	// program of the host.
	Socket string  `json:"socket,omitempty"`
	GPU    ipc.GPU `json:"gpu,omitzero"`
	// Controlled selects package gpu/nvidia, which the product uses and which can take the context
	// off the GPU, instead of CUDA's driver interface, which CUDA programs use.
	Controlled bool `json:"controlled,omitempty"`
	// Burns is set for a program that uses no GPU, and [Request.Burn] alone.
	Burns bool `json:"burns,omitempty"`
	// Preempt makes a guest's kernels preemptible. They are launched in the form that their
	// measured cost chooses.
	Preempt bool `json:"preempt,omitempty"`
	// Forms are the forms to make; 0 stands for all.
	Forms uint8 `json:"forms,omitempty"`
	// Priority is the priority of the launches, as in CUDA: lower is more urgent.
	Priority int32 `json:"priority,omitempty"`
	// Gate is the file by which the tenant is held back, and Slot its index there; see [Gate].
	Gate string `json:"gate,omitempty"`
	Slot int    `json:"slot,omitempty"`
}

// Request asks for one operation: the field that is set.
type Request struct {
	Load    *Job     `json:"load,omitempty"`    // answered by Job
	Run     *Run     `json:"run,omitempty"`     // answered by Ran
	Copy    *Copy    `json:"copy,omitempty"`    // answered by Seconds
	Suspend *Suspend `json:"suspend,omitempty"` // answered by Standstills
	Forms   *int     `json:"forms,omitempty"`   // of a job's kernels; answered by Form
	Evict   *Evict   `json:"evict,omitempty"`   // answered by Evicted
	Sum     *int     `json:"sum,omitempty"`     // of a job; answered by Sum
	Events  *Events  `json:"events,omitempty"`  // answered by Took
	Stream  *Stream  `json:"stream,omitempty"`  // answered by Ran
	Burn    *Burn    `json:"burn,omitempty"`    // answered by Burnt
	Free    bool     `json:"free,omitempty"`    // answered by Free; for programs of the host
	Clear   *int     `json:"clear,omitempty"`   // clears a job's results, so that the next run must compute them again
	Reset   bool     `json:"reset,omitempty"`   // drops everything
}

// Answer is the result of a request. Ready is set in the first line, before any request.
type Answer struct {
	Error       string       `json:"error,omitempty"`
	Ready       bool         `json:"ready,omitempty"`
	Job         int          `json:"job,omitempty"`
	Ran         *Ran         `json:"ran,omitempty"`
	Seconds     float64      `json:"seconds,omitempty"`
	Standstills []Standstill `json:"standstills,omitempty"`
	Form        *Form        `json:"form,omitempty"`
	Evicted     *Evicted     `json:"evicted,omitempty"`
	// Sum is a checksum of a scaled job's results, up to [SumBytes] of each buffer. Equal results
	// have equal sums.
	Sum uint64 `json:"sum,omitempty"`
	// Took are the times of events.
	Took []time.Duration `json:"took,omitempty"`
	// Burnt is how often a program's work was done in its window.
	Burnt int `json:"burnt,omitempty"`
	// Free is the free GPU memory in bytes.
	Free uint64 `json:"free,omitempty"`
}

// Job is a sequence of launches to be repeated: the field that is set.
type Job struct {
	Spin *Spin `json:"spin,omitempty"`
	// Tally is the same work in a kernel whose results show which launches and blocks ran; see
	// [Run.Check].
	Tally *Spin `json:"tally,omitempty"`
	// Fixed names a kernel of fixed.ptx: empty, wild, strays or endless.
	Fixed string `json:"fixed,omitempty"`
	// Case is a case of the corpus, such as "matmul/large". Scaled is one of the corpus's kernels
	// at the size of a real program's.
	Case   string `json:"case,omitempty"`
	Scaled string `json:"scaled,omitempty"`
	// Work is a kernel of EDGE's figures.
	Work *Work `json:"work,omitempty"`
	// Polls is a kernel of threads that do nothing but wait for work, as persistent threads do.
	Polls *Polls `json:"polls,omitempty"`
	// Image is code that is only loaded.
	Image []byte `json:"image,omitempty"`
}

// Spin is a kernel of fixed work.
type Spin struct {
	Blocks     int `json:"blocks"`
	Threads    int `json:"threads"`
	Iterations int `json:"iterations"`
}

// Polls is a kernel that polls a word of the GPU's memory in each block, for some time.
type Polls struct {
	Blocks  int           `json:"blocks"`
	Threads int           `json:"threads"`
	For     time.Duration `json:"for"`
}

// Form is a form of a kernel, by its number in package abi, with the tuner's information about it.
type Form struct {
	Form  uint8  `json:"form"`
	Group uint32 `json:"group"`
	Every uint32 `json:"every"`
	Why   string `json:"why,omitempty"`
	// Task is the duration of one of the kernel's blocks, and Leaves the assumed time in which the
	// kernel leaves the GPU.
	Task   time.Duration `json:"task,omitempty"`
	Leaves time.Duration `json:"leaves,omitempty"`
}

// Settled reports whether the tuner has made its choice, or never will.
func (f *Form) Settled() bool { return f.Why != "" && f.Why != tune.WhyMeasuring.String() }

// Run repeats a job. Each iteration launches it Rounds times, with up to Depth launches under way
// at a time, waits for all launches, and then pauses.
type Run struct {
	Job int `json:"job"`
	// At is the start in Unix nanoseconds; 0 is now. Launches that end within For, after Warm, are
	// counted, and the work continues for After. If For is 0, Count iterations run, and all are
	// counted.
	At    int64         `json:"at,omitempty"`
	Warm  time.Duration `json:"warm,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	After time.Duration `json:"after,omitempty"`
	Count int           `json:"count,omitempty"`

	Rounds int           `json:"rounds,omitempty"` // 0 stands for 1
	Depth  int           `json:"depth,omitempty"`  // 0 stands for 1
	Pause  time.Duration `json:"pause,omitempty"`
	// Jitter is the greatest random extension of a pause.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Check has the results checked afterwards if they can be: of a case the results of the last
	// round, of a tally those of all launches.
	Check bool `json:"check,omitempty"`
	// As, if set, is the form in which a guest's kernels are launched, instead of the form that the
	// tuner chooses.
	As *Form `json:"as,omitempty"`
	// Slices cuts each launch into this number of launches, one after the other, each with its part
	// of the blocks. All of them run the grid's first blocks, which is enough to measure the cost.
	Slices int `json:"slices,omitempty"`
	// Allocate allocates memory during the run, this number of bytes at a time, until an allocation
	// is refused.
	Allocate uint64 `json:"allocate,omitempty"`
}

// Ran is the result of a run.
type Ran struct {
	Iterations int `json:"iterations"`
	Launches   int `json:"launches"`
	// Window is the time in which launches were counted, and All the number of launches from begin
	// to end.
	Window time.Duration `json:"window"`
	All    int           `json:"all"`
	// Span is the time from the last end of a launch before the window to the last end in it: the
	// time that the counted launches took, regardless of the window's limits. It is 0 if no launch
	// ended before the window or in it, or if the rest of the window was longer than that time.
	Span time.Duration `json:"span,omitempty"`
	// Standstill is the longest time from the begin, or from the end of a launch, to the next end,
	// without the pauses, and StandstillAt when it began, from the begin of the run.
	Standstill   time.Duration `json:"standstill,omitempty"`
	StandstillAt time.Duration `json:"standstillAt,omitempty"`
	// Turnarounds are the times of the iterations, and Executed those of the launches by the GPU's
	// clock, at most [Kept] of each.
	Turnarounds []time.Duration `json:"turnarounds,omitempty"`
	Executed    []time.Duration `json:"executed,omitempty"`
	Evictions   uint64          `json:"evictions,omitempty"`
	// Stamped is the time from the start of a spin's first block, over all launches, to the end of
	// the last, by %globaltimer. Block is the mean duration of a block.
	Stamped time.Duration `json:"stamped,omitempty"`
	Block   time.Duration `json:"block,omitempty"`
	// Allocated is the number of bytes allocated, and Refused the error of the allocation that
	// failed.
	Allocated uint64 `json:"allocated,omitempty"`
	Refused   string `json:"refused,omitempty"`
}

// SumBytes is how much of each buffer goes into a sum.
const SumBytes = 8 << 20

// Kept limits the times in a [Ran], which has the first ones.
const Kept = 4096

// Copy copies the given number of bytes between ordinary memory and the GPU, Times times.
type Copy struct {
	Bytes int  `json:"bytes"`
	Times int  `json:"times"`
	Up    bool `json:"up"`
	// Pinned uses memory that is registered with the GPU, if the GPU has such memory.
	Pinned bool `json:"pinned,omitempty"`
}

// Suspend takes the context's channels off the GPU and puts them back, Times times, during a kernel
// that watches the clock.
type Suspend struct {
	Times  int `json:"times"`
	Blocks int `json:"blocks"`
}

// Standstill is one suspension: Suspend is the time from before the call until the last block stood
// still; Resume and Whole are the times from before the call back until the first and the last
// block went on; Off and On are the durations of the calls. Stopped reports whether all blocks
// stood still.
type Standstill struct {
	Stopped bool          `json:"stopped"`
	Suspend time.Duration `json:"suspend"`
	Resume  time.Duration `json:"resume"`
	Whole   time.Duration `json:"whole"`
	Off     time.Duration `json:"off_call"`
	On      time.Duration `json:"on_call"`
}

// Evict evicts a scaled kernel Times times at random moments, in the form that its measured cost
// chooses. The program uses the GPU as executors do.
type Evict struct {
	Scaled string `json:"scaled"`
	Times  int    `json:"times"`
	// For, if set, limits the duration: no further eviction starts after it, however few there
	// were.
	For time.Duration `json:"for,omitempty"`
	// As is the form of the launches. It may not be the original.
	As Form `json:"as"`
}

// Evicted is the result of Evict.
type Evicted struct {
	// Original and Chosen are the durations of a launch as the original and in the form: medians of
	// the same number of launches, taken in turn.
	Original time.Duration `json:"original"`
	Chosen   time.Duration `json:"chosen"`
	// Longest is the duration of the longest of the chunks with which the form fills the GPU.
	Longest time.Duration `json:"longest"`
	// Took are the times from writing the evict word until the GPU is free, of the launches that
	// had work left then. Each of these was resumed to its end. Same reports whether the results
	// equal the original's, both after all evictions and after several more that were checked one
	// by one.
	Took []time.Duration `json:"took"`
	Same bool            `json:"same"`
}
