package fairshare

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// GuestID names a guest for as long as it is attached.
type GuestID uint32

// LaunchID names one kernel launch, over all guests; zero is none.
type LaunchID uint64

// Policy decides who may use the GPU. It is called from one goroutine.
type Policy interface {
	// Decide answers ev, which happened at now, given who runs, waits and how
	// much each used. next is in how long the policy wants to be asked again,
	// with a Tick of NoPhase; zero or less: at the next event. The verdicts are
	// valid until the next call, and are carried out in their order.
	Decide(now time.Duration, ev Event, st State) (v []Verdict, next time.Duration)
}

// EventKind is what a policy is told of.
type EventKind uint8

const (
	// Tick is a phase's end, or an instant the policy asked for.
	Tick EventKind = iota
	// Arrived is a launch that a guest submitted.
	Arrived
	// Finished is a launch that ran to its end.
	Finished
	// Evicted is a launch that left the GPU with tasks undone.
	Evicted
	// Changed is a guest that came, left, or was given another weight.
	Changed
)

var eventKindNames = [...]string{"tick", "arrived", "finished", "evicted", "changed"}

// String is the kind's name in logs.
func (k EventKind) String() string {
	if int(k) < len(eventKindNames) {
		return eventKindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// PhaseKind is which phase of a round a Tick ends.
type PhaseKind uint8

// A round is a polling phase, in which the GPU's status is watched, and a quiet
// phase, in which it is not.
const (
	NoPhase PhaseKind = iota
	PollPhase
	QuietPhase
)

// Event is something that happened.
type Event struct {
	Kind EventKind
	// Guest and Launch are whom it concerns, where it concerns one.
	Guest  GuestID
	Launch LaunchID
	// Phase is the phase that a Tick ends.
	Phase PhaseKind
	// Length is how long that phase really was, and Watched how much of it was
	// measured: all of a polling phase; all of a quiet phase where the source
	// or the executor gives it; else its beginning, for which the sampler
	// polled on until a suspended guest's kernel had left.
	Length, Watched time.Duration
	// Spread is whether the pieces of the polling phase were spread over the quiet
	// time, so that they show all of it; the two phases then end together, the
	// quiet one first. Otherwise the quiet phase came before the polling phase,
	// which shows how it was at its end.
	Spread bool
}

// State is what a policy decides by.
type State struct {
	// Guests are all that are attached, in order of ID.
	Guests []Guest
	// Round is the mean length of a polling and a quiet phase together, as
	// planned now.
	Round time.Duration
	// Launches are those that wait or run, in order of arrival. Only policies
	// about kernels look at them; others may be given none.
	Launches []Launch
	// SMs is how many streaming multiprocessors the GPU has.
	SMs uint32
	// CoRuns is whether kernels of different contexts can be on the GPU at one
	// time, each on some of the SMs. Where it is not set they take turns, and
	// only launches of one context run side by side.
	CoRuns bool
	// Slices bounds the time slices that can be set; zero where none can.
	Slices SliceLimits
}

// Guest is what is known of one guest at an event.
type Guest struct {
	ID GuestID
	// Weight is its part of the GPU relative to the others' weights; above 0.
	Weight float64
	// Quota bounds its part, whatever the weights. It is [Bound]'s to keep, no
	// policy's.
	Quota Quota
	// Used is the GPU time it used in the watched part of the phase that a Tick
	// ends, summed over its channel groups, and Spans the number of times
	// between context switches that this is the sum of.
	Used time.Duration
	Runs uint64
	// Late is GPU time of commands that were fetched before the guest was
	// suspended and have now completed, as far as it passed unwatched and was
	// not reported before.
	Late time.Duration
	// Active is whether it had work, waiting or executing, at any time of the
	// phase; Backlogged is whether it has some now.
	Active, Backlogged bool
	// Dry is how much of the phase it had no work at all, where that is known.
	// A guest that runs dry doesn't saturate the GPU and is entitled to what it
	// uses; without Dry a policy goes by how often Backlogged is set.
	NoWork time.Duration
	// Idle is how much of the watched part of the phase the GPU executed
	// nothing, whoever had work. A guest that was not suspended could have used
	// it, whatever Backlogged says: its commands may be such that they wait for
	// something else, or it may only pretend to have any.
	Idle time.Duration
	// Running is whether a command of it is on the GPU now.
	Running bool
	// Suspended is whether its channels are held now, by an earlier verdict.
	Suspended bool
	// Charged is what evictions for its sake cost others since the last phase's
	// end, less what evictions for others' sake cost it; see [EvictionCharges].
	Charged time.Duration
	// Groups is how many channel groups of it have work now, among which its time
	// slices are divided.
	Groups int
	// Urgency is the highest priority that its launches may have.
	Urgency int
	// Requests is what it has asked of the GPU. Only neon looks at it.
	Requests Requests
}

// Requests is what a guest has asked of the GPU since it came.
type Requests struct {
	// Completed is how many requests have ended, and Calls how many of these launched
	// a kernel.
	Completed, Calls uint64
	// UnderWay reports whether the GPU has any that have not ended.
	UnderWay bool
	// First is when the GPU was given the first of those that it was given since the
	// policy was last asked, on the clock of Decide's now.
	First time.Duration
}

// Launch is one kernel that waits or runs.
type Launch struct {
	ID    LaunchID
	Guest GuestID
	// Context is which of the guest's contexts it is of. Launches of one context
	// can run side by side on any GPU.
	Context uint64
	// Arrived is when the guest submitted it, on the clock of Decide's now.
	Arrived time.Duration
	// Running is whether it was let to the GPU, from the Run verdict on until it
	// has ended or left. One that was never let there, or that left, waits.
	Running bool
	// Evicting is whether all of it was told to leave the GPU and has not left.
	Evicting bool
	// BelowSM is the bound of the newest Evict since it last was let run: the SMs
	// below it are others'. Zero is none. A Run verdict for one that is running
	// gives them back: what is left of it is launched there too.
	BelowSM uint32
	// Priority is larger for more urgent launches. It is the static one, kept
	// within the guest's ceiling (see [Ceiling]); a policy may raise it for itself.
	Priority int
	// Blocks is how many thread blocks (or tasks) are left, and PerSM how many
	// of them an SM holds at a time.
	Blocks uint64
	PerSM  uint32
	// Used is how long it has run, with the run that goes on, and Predicted how
	// long it will run in all; zero where unknown.
	Used, Predicted time.Duration
	// Evictable is whether it was compiled to leave the GPU when told.
	Evictable bool
	// EvictionCost is the GPU time that evicting it and launching it again is
	// expected to cost: the mean of measured runs. Zero is unknown, see
	// [AssumedCost].
	EvictionCost time.Duration
}

// Action is what a verdict says.
type Action uint8

const (
	// Run lets a held launch go to the GPU.
	Run Action = iota
	// Hold keeps a launch from the GPU.
	Hold
	// Suspend stops fetching a guest's commands.
	Suspend
	// Resume fetches them again.
	Resume
	// Evict takes a running launch off the GPU, or off the SMs below BelowSM.
	Evict
	// Slice sets how long a guest's channel groups run before the next one's
	// turn.
	Slice
)

var actionNames = [...]string{"run", "hold", "suspend", "resume", "evict", "slice"}

// String is the action's name in logs.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Verdict is one thing to be done. Carrying out a verdict that already holds
// does nothing.
type Verdict struct {
	Guest  GuestID
	Launch LaunchID // Run, Hold and Evict
	Action Action
	// BelowSM bounds an Evict: blocks on SMs below it leave; math.MaxUint32 is
	// all.
	BelowSM uint32
	// For is for whose sake an Evict is: what it costs is charged to that guest.
	// It is the evicted launch's own guest where that had more than its part, or
	// its slice is over.
	For GuestID
	// Spatial says of an Evict whether taking some of the SMs was enough, and if
	// not, why; zero where it was not considered.
	Spatial SpatialUse
	// Slice is the time slice of a Slice verdict.
	Slice time.Duration
}

// Options choose among a policy's variants. The zero value is the default.
type Options struct {
	// Threshold is the lead over the system's virtual time at which a guest is
	// suspended; zero: a quarter of the round as it is planned at the time in dfq, five
	// times around the GPU where that sets time slices (half a round to 100 ms), and a
	// round as it was in the baselines, as LoGA has it.
	Threshold time.Duration
	// Sample is how long neon has each guest run alone in a round; zero: 1 ms, as
	// NEON has it. LoGA's evaluation has 1 ms for each of its channels (§5.1).
	Sample time.Duration
	// MaxOverhead is the part of the GPU's time that ffs may lose, to evictions and to
	// waits for the host between launches; zero: 0.1, as in FLEP's evaluation (§6.3.3).
	MaxOverhead float64
	// Evictions bounds how many evictions a guest may cause. The zero value is
	// [DefaultRate].
	Evictions Rate
	// Temporal is whether evictions always take all SMs.
	Temporal bool
	// AtOnce is whether a launch that waits has the GPU as soon as that is free, as the
	// papers have it, though a more urgent one is likely to come in a moment.
	AtOnce bool
	// Alone is whether a more urgent launch waits for one that runs and cannot be
	// evicted. Else it is let to the GPU beside it, where the hardware has them
	// take turns.
	Alone bool
}

// makers are the policies by name.
var makers = map[string]func(Options) Policy{
	"none":       func(Options) Policy { return &none{} },
	"dfq":        func(o Options) Policy { return newFairQueue(o) },
	"dfq-loga":   func(o Options) Policy { return newPrinted(o, gpuTime) },
	"loga-cl":    func(o Options) Policy { return newPrinted(o, meanSpan) },
	"loga":       func(o Options) Policy { return newReleased(o, gpuTime) },
	"loga-spans": func(o Options) Policy { return newReleased(o, meanSpan) },
	"neon":       func(o Options) Policy { return newSampled(o) },
	"fifo":       func(o Options) Policy { return newFIFO(o) },
	"reorder":    func(o Options) Policy { return newReorder(o) },
	"piv":        func(o Options) Policy { return newPIV(o) },
	"hpf":        func(o Options) Policy { return newHPF(o) },
	"dprr":       func(o Options) Policy { return newAging(o) },
	"ffs":        func(o Options) Policy { return newFairFirst(o) },
}

// New makes a policy by its name.
func New(name string, o Options) (Policy, error) {
	build, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("fairshare: unknown policy %q: want one of %q", name, Names())
	}
	p := build(o)
	if byKernel[name] {
		p = &urgentSlices{policy: p}
	}
	return p, nil
}

// Names are the policies that New makes.
func Names() []string { return slices.Sorted(maps.Keys(makers)) }
