package accounting

import "time"

// Handler is the main thread of LoGA §4.2 for one GPU: it learns the end of
// each phase and says how to go on. Its methods are called one at a time, on a
// goroutine of the [Sampler]'s that is never the polling thread, and the phases
// they are given are valid until they return.
type Handler interface {
	// PollEnded is told what a polling phase came to. While it decides, the
	// polling thread watches on, so that what it asks to await is charged
	// without a gap; after [Patience] without an answer the thread sleeps.
	PollEnded(p *Phase) Plan
	// QuietEnded is told of the time since the polling phase before that was not
	// polled. Where polling phases are in one it comes when the next one has
	// begun; where they are in pieces, when the next one is over, right before
	// PollEnded.
	QuietEnded(q *Quiet)
	// Failed says that the GPU can't be watched any more. It is the last call.
	Failed(err error)
}

// Patience is how long the polling thread watches on for a Handler's answer.
const Patience = 200 * time.Microsecond

// Plan is a Handler's answer at the end of a polling phase.
type Plan struct {
	// Load scales the next phases.
	Load Load
	// WatchOn is for how long the thread polls on in any case. Where polling
	// phases are in one, a phase's length is well spent after a verdict that
	// changed who runs: the mix is not yet the one that the next phase will see.
	WatchOn time.Duration
	// Await are groups of guests that have just been suspended: the thread
	// polls on until none of them executes, but no longer than AwaitAtMost;
	// zero: one mean quiet phase. The sampler reads Await until the next call.
	Await       []GroupID
	AwaitAtMost time.Duration
	// Pace says when a [Recorder] ends the next phase.
	Pace Pace
}

// Pace is how soon a phase ends that costs only its end. A processor that wakes to end
// one finds nothing in its caches: on a host of 16 that takes it 0.4 ms, most of what
// accounting takes where there are few context switches.
type Pace uint8

const (
	// Brisk is once an interval: what is done next hangs on it.
	Brisk Pace = iota
	// Easy is every third interval: nobody works, or nothing is decided about those
	// who do.
	Easy
)

// An easy pace is every so many intervals, but not longer than easyMost, if an interval
// is not that long: executors have room for their accounts of that time, where launches
// are not too many.
const (
	easyIntervals = 3
	easyMost      = 60 * time.Millisecond
)

// Phase is how long a phase is where it is interval at the least.
func (p Pace) Phase(interval time.Duration) time.Duration {
	if p == Easy {
		return max(min(easyIntervals*interval, easyMost), interval)
	}
	return interval
}

// Quiet is the time between two polling phases, and between the pieces of the
// second.
type Quiet struct {
	// Watched is its beginning, which was still polled. Watched.Start is the
	// polling phase's end.
	Watched Phase
	// Unwatched is how long was not polled, on the GPU's clock.
	Unwatched time.Duration
	// Spread is whether the next polling phase was in pieces, and has ended too.
	Spread bool
}

// Length is how long the quiet phase was, with what was watched of it.
func (q *Quiet) Length() time.Duration { return q.Watched.Length() + q.Unwatched }
