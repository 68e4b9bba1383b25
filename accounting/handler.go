package accounting

import "time"

// Handler decides about one GPU (LoGA §4.2's main thread): it learns what each phase came to and
// plans the next one. Its methods are called one at a time, by a goroutine that never polls. The
// phases that it is given are valid until the method returns.
type Handler interface {
	// PollEnded is called at the end of a polling phase. While it decides, the polling thread polls
	// on, so that groups in Plan.Await are charged without a gap. After [AnswerTimeout] without an
	// answer the thread sleeps.
	PollEnded(p *Phase) Plan
	// QuietEnded is called with the time since the last polling phase. Where polling phases are in
	// one piece the call comes when the next one has begun. Where they are in several, it comes
	// when the next one is over, right before PollEnded; the first call then has only the pauses of
	// the first polling phase.
	QuietEnded(q *Quiet)
	// Failed says that the GPU can't be read any more. It is the last call.
	Failed(err error)
}

// AnswerTimeout is how long the polling thread waits for a Handler's answer while polling on.
const AnswerTimeout = 200 * time.Microsecond

// Plan is a Handler's answer at the end of a polling phase.
type Plan struct {
	// Load scales the next phases.
	Load Load
	// WatchOn is how long the thread polls on in any case. Where polling phases are in one piece, a
	// phase's length is well spent after a verdict that changed who runs: the mix of work is not
	// yet the one that the next phase will see.
	WatchOn time.Duration
	// Await lists groups of guests that have just been suspended. The thread polls on until none of
	// them executes, but no longer than AwaitAtMost, or than one mean quiet phase if that is zero.
	// The sampler reads Await until the next call.
	Await       []GroupID
	AwaitAtMost time.Duration
	// Pace says when a [Recorder] ends the next phase.
	Pace Pace
}

// Pace is how often a [Recorder] ends a phase. Each end costs processor time: a processor that
// wakes for it finds nothing in its caches, which takes 0.4 ms on a host of 16 processors. That is
// most of what accounting costs where there are few context switches.
type Pace uint8

const (
	// Brisk ends a phase every period. It is for when decisions depend on it.
	Brisk Pace = iota
	// Easy ends a phase every third period. It is for when no guest works, or nothing is decided
	// about those that do.
	Easy
)

// A phase at an easy pace lasts easyPeriods periods. It lasts at most maxEasyPhase if that is
// longer than a period: executors have room for their reports of that time, unless there are very
// many launches.
const (
	easyPeriods  = 3
	maxEasyPhase = 60 * time.Millisecond
)

// Phase returns the length of a phase if the shortest is one period.
func (p Pace) Phase(period time.Duration) time.Duration {
	if p == Easy {
		return max(min(easyPeriods*period, maxEasyPhase), period)
	}
	return period
}

// Quiet is the time between two polling phases, together with the pauses between the pieces of the
// second.
type Quiet struct {
	// Watched is its beginning, which was still polled. Watched.Start is the end of the polling
	// phase.
	Watched Phase
	// Unwatched is how long the GPU was not polled, on its own clock.
	Unwatched time.Duration
	// Spread reports whether the next polling phase was in pieces and has ended too.
	Spread bool
}

// Length returns the length of the quiet phase, polled or not.
func (q *Quiet) Length() time.Duration { return q.Watched.Length() + q.Unwatched }
