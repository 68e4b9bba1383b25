package tenant

import (
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/ipc"
)

// Setup is the first line that a tenant reads.
type Setup struct {
	Name string `json:"name"`
	// Socket is its virtual GPU's. Without one it uses GPU, as a program of the host.
	Socket string  `json:"socket,omitempty"`
	GPU    ipc.GPU `json:"gpu,omitzero"`
	// Controlled has it use NVIDIA's GPU as the product does, not as CUDA's programs
	// do: by package gpu/nvidia, which can take its context off the GPU.
	Controlled bool `json:"controlled,omitempty"`
	// Preempt has kernels of a guest made preemptible, and launched in the form that
	// their measured cost chooses.
	Preempt bool `json:"preempt,omitempty"`
	// Forms are those that are made, 0: all.
	Forms uint8 `json:"forms,omitempty"`
	// Priority is that of its launches, as CUDA's: lower is more urgent.
	Priority int32 `json:"priority,omitempty"`
	// Gate is a file that holds the tenant back, and its place in it; see [Gate].
	Gate string `json:"gate,omitempty"`
	Slot int    `json:"slot,omitempty"`
}

// Request asks for one thing, by the field that is set.
type Request struct {
	Load    *Job     `json:"load,omitempty"`    // -> Job
	Run     *Run     `json:"run,omitempty"`     // -> Ran
	Copy    *Copy    `json:"copy,omitempty"`    // -> Seconds
	Suspend *Suspend `json:"suspend,omitempty"` // -> Standstills
	Forms   *int     `json:"forms,omitempty"`   // of a job's kernels -> Form
	Evict   *Evict   `json:"evict,omitempty"`   // -> Evicted
	Sum     *int     `json:"sum,omitempty"`     // of a job -> Sum
	Free    bool     `json:"free,omitempty"`    // -> Free, of a program of the host
	Clear   *int     `json:"clear,omitempty"`   // a job's results, for the next run to make anew
	Reset   bool     `json:"reset,omitempty"`   // everything is dropped
}

// Answer is what came of a request. Ready is the first line, before any.
type Answer struct {
	Error       string       `json:"error,omitempty"`
	Ready       bool         `json:"ready,omitempty"`
	Job         int          `json:"job,omitempty"`
	Ran         *Ran         `json:"ran,omitempty"`
	Seconds     float64      `json:"seconds,omitempty"`
	Standstills []Standstill `json:"standstills,omitempty"`
	Form        *Form        `json:"form,omitempty"`
	Evicted     *Evicted     `json:"evicted,omitempty"`
	// Sum is of what a scaled job has computed, as far as [SumBytes] of each buffer:
	// equal for equal results.
	Sum uint64 `json:"sum,omitempty"`
	// Free is how much of the GPU's memory nobody has, in bytes.
	Free uint64 `json:"free,omitempty"`
}

// Job is launches to be repeated, by the field that is set.
type Job struct {
	Spin *Spin `json:"spin,omitempty"`
	// Tally is the same work, but of a kernel whose results tell what ran; see [Run.Check].
	Tally *Spin `json:"tally,omitempty"`
	// Fixed is a kernel of fixed.ptx by its name: empty, wild, strays, endless.
	Fixed string `json:"fixed,omitempty"`
	// Case is a case of the corpus, "matmul/large", and Scaled one of its kernels at
	// the size of a real program's.
	Case   string `json:"case,omitempty"`
	Scaled string `json:"scaled,omitempty"`
	// Image is code to be loaded, and nothing more.
	Image []byte `json:"image,omitempty"`
}

// Spin is a kernel of fixed work.
type Spin struct {
	Blocks     int `json:"blocks"`
	Threads    int `json:"threads"`
	Iterations int `json:"iterations"`
}

// Form is a form of a kernel, by its number in package abi, with what the tuner says
// of it.
type Form struct {
	Form  uint8  `json:"form"`
	Group uint32 `json:"group"`
	Every uint32 `json:"every"`
	Why   string `json:"why,omitempty"`
	// Task is how long one of the kernel's blocks takes, and Leaves how long the
	// kernel is taken to need to leave.
	Task   time.Duration `json:"task,omitempty"`
	Leaves time.Duration `json:"leaves,omitempty"`
}

// Settled reports whether the tuner has chosen, or never will.
func (f *Form) Settled() bool { return f.Why != "" && f.Why != tune.WhyMeasuring.String() }

// Run works at a job: iterations of Rounds times its launches, of which Depth are
// under way at a time, each iteration waited for, and a pause after it.
type Run struct {
	Job int `json:"job"`
	// At is when to begin, in Unix nanoseconds; 0: now. What ends within For, after
	// Warm, is counted, and the work goes on for After; with For 0, Count iterations,
	// from the first on.
	At    int64         `json:"at,omitempty"`
	Warm  time.Duration `json:"warm,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	After time.Duration `json:"after,omitempty"`
	Count int           `json:"count,omitempty"`

	Rounds int           `json:"rounds,omitempty"` // 0: 1
	Depth  int           `json:"depth,omitempty"`  // 0: 1
	Pause  time.Duration `json:"pause,omitempty"`
	// Jitter is how much longer pauses may be, at random.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Check has the results checked afterwards, where they can be: of a case those of its
	// last round, of a tally those of all launches.
	Check bool `json:"check,omitempty"`
	// As, if set, is the form in which a guest's kernels are launched, not the one
	// that the tuner chooses.
	As *Form `json:"as,omitempty"`
	// Slices cuts each launch into so many, one after the other, each with its part
	// of the blocks; all run the first blocks, which does for what it costs.
	Slices int `json:"slices,omitempty"`
	// Allocate has memory allocated meanwhile, so many bytes at a time, until that is
	// refused.
	Allocate uint64 `json:"allocate,omitempty"`
}

// Ran is what a run came to.
type Ran struct {
	Iterations int `json:"iterations"`
	Launches   int `json:"launches"`
	// Window is the time in which they were counted, and All how many launches there
	// were from begin to end.
	Window time.Duration `json:"window"`
	All    int           `json:"all"`
	// Span is from the last end of a launch before the window to the last in it, which
	// is how long those counted took, wherever the window cut; 0 where there was none
	// before it, or in it, or where no other came for longer than that.
	Span time.Duration `json:"span,omitempty"`
	// Standstill is the longest time from the begin, or an end of a launch, to the next end,
	// without the pauses.
	Standstill time.Duration `json:"standstill,omitempty"`
	// Turnarounds are of each iteration, and Executed of each launch by the GPU's
	// clock, at most [Kept] of each.
	Turnarounds []time.Duration `json:"turnarounds,omitempty"`
	Executed    []time.Duration `json:"executed,omitempty"`
	Evictions   uint64          `json:"evictions,omitempty"`
	// Stamped is from the start of the first block of all launches of a spin to the end
	// of the last, by %globaltimer, and Block how long a block took in the mean.
	Stamped time.Duration `json:"stamped,omitempty"`
	Block   time.Duration `json:"block,omitempty"`
	// Allocated is how much was, and Refused why not more.
	Allocated uint64 `json:"allocated,omitempty"`
	Refused   string `json:"refused,omitempty"`
}

// SumBytes is how much of each buffer goes into a sum.
const SumBytes = 8 << 20

// Kept bounds the times in a [Ran]; of more, the first are kept.
const Kept = 4096

// Copy copies so many bytes between ordinary memory and the GPU, Times times.
type Copy struct {
	Bytes int  `json:"bytes"`
	Times int  `json:"times"`
	Up    bool `json:"up"`
	// Pinned copies from memory that is registered with the GPU, where there is such.
	Pinned bool `json:"pinned,omitempty"`
}

// Suspend has the context's channels taken off the GPU and put back, Times times, in
// a kernel that watches the clock.
type Suspend struct {
	Times  int `json:"times"`
	Blocks int `json:"blocks"`
}

// Standstill is one suspension: from before the call until the last block stood
// still, from before the call back until the first went on, and until the last did, and
// how long the calls took. Stopped tells whether all blocks did stand still.
type Standstill struct {
	Stopped bool          `json:"stopped"`
	Suspend time.Duration `json:"suspend"`
	Resume  time.Duration `json:"resume"`
	Whole   time.Duration `json:"whole"`
	Off     time.Duration `json:"off_call"`
	On      time.Duration `json:"on_call"`
}

// Evict has a scaled kernel, in the form that its measured cost chooses, evicted Times
// times at random moments, by a program that uses the GPU as executors do.
type Evict struct {
	Scaled string `json:"scaled"`
	Times  int    `json:"times"`
	// For, if set, is after how long there are no more, however few there were.
	For time.Duration `json:"for,omitempty"`
	// As is the form in which it is launched; not the original.
	As Form `json:"as"`
}

// Evicted is what came of that.
type Evicted struct {
	// Original and Chosen are how long a launch takes, as the original and in the form:
	// medians of as many launches by turns.
	Original time.Duration `json:"original"`
	Chosen   time.Duration `json:"chosen"`
	// Longest is how long the longest of the chunks takes with which the form fills the
	// GPU.
	Longest time.Duration `json:"longest"`
	// Took are from writing the word until the GPU is free, of those launches that had
	// work left then, each of which was gone on with to its end. Same tells whether the
	// results were the original's, after all of them and of some more each by itself.
	Took []time.Duration `json:"took"`
	Same bool            `json:"same"`
}
