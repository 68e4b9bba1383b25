package fairshare

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// GuestID identifies a guest for as long as it is attached.
type GuestID uint32

// LaunchID identifies one kernel launch among those of all guests. Zero is none.
type LaunchID uint64

// Policy decides which guests and launches may use the GPU. It is called from one goroutine.
type Policy interface {
	// Decide answers ev, which happened at now, given which guests and launches run and wait and
	// how much each used. next is the time until the policy wants to be called again, with a Tick
	// of NoPhase; zero or less means at the next event. The verdicts are valid until the next call,
	// and are carried out in their order.
	Decide(now time.Duration, ev Event, st State) (v []Verdict, next time.Duration)
}

// EventKind is what happened.
type EventKind uint8

const (
	// Tick is the end of a phase, or an instant that the policy asked for.
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

// String returns the kind's name in logs.
func (k EventKind) String() string {
	if int(k) < len(eventKindNames) {
		return eventKindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// PhaseKind is which phase of a round a Tick ends.
type PhaseKind uint8

// A round is a polling phase, in which the GPU's status is watched, and a quiet phase, in which it
// is not.
const (
	NoPhase PhaseKind = iota
	PollPhase
	QuietPhase
)

// Event is something that happened.
type Event struct {
	Kind EventKind
	// Guest and Launch are what the event concerns, if it concerns one.
	Guest  GuestID
	Launch LaunchID
	// Phase is the phase that a Tick ends.
	Phase PhaseKind
	// Length is how long that phase really was, and Watched how much of it was measured: all of a
	// polling phase; all of a quiet phase if the source or the executor measures it; otherwise only
	// its beginning, during which the sampler polled on until a suspended guest's kernel had left.
	Length, Watched time.Duration
	// Spread reports whether the pieces of the polling phase were spread over the quiet time, so
	// that they show all of it. The two phases then end together, the quiet one first. Otherwise
	// the quiet phase came before the polling phase, which shows how things were at its end.
	Spread bool
}

// State is what a policy decides by.
type State struct {
	// Guests are all attached guests, in order of ID.
	Guests []Guest
	// Round is the mean length of a polling and a quiet phase together, as planned now.
	Round time.Duration
	// Launches are those that wait or run, in order of arrival. Only policies about launches use
	// them; others may be given none.
	Launches []Launch
	// SMs is the number of the GPU's streaming multiprocessors.
	SMs uint32
	// CoRuns reports whether kernels of different contexts can be on the GPU at one time, each on
	// some of the SMs. Otherwise they take turns, and only launches of one context run side by
	// side.
	CoRuns bool
	// Slices bounds the time slices that can be set. It is zero if none can be set.
	Slices SliceLimits
	// Left are guests that left since the last phase, with what they used in this one. [Bound] counts
	// it for their caps; policies ignore it.
	Left []Left
}

// Left is what a guest that left used in the phase in which it did.
type Left struct {
	Key  string
	Used time.Duration
}

// Guest is what is known of one guest at an event.
type Guest struct {
	ID GuestID
	// Key is the same for a guest that has left and come back, which has another ID then. It is "" if
	// that is not known.
	Key string
	// Weight is its part of the GPU relative to the others' weights. It is above 0.
	Weight float64
	// Quota bounds its part, whatever the weights. [Bound] enforces it; policies ignore it.
	Quota Quota
	// Held reports whether its budget is spent and it is to have no GPU time until that changes.
	// [Bound] sees to it; policies ignore it.
	Held bool
	// Used is the GPU time it used in the watched part of the phase that a Tick ends, summed over
	// its channel groups. Runs is the number of runs without a context switch that this is the sum
	// of.
	Used time.Duration
	Runs uint64
	// Late is GPU time whose accounting was deferred: that of commands which were fetched before
	// the guest was suspended and have now completed, as far as it passed unwatched and was not
	// reported before.
	Late time.Duration
	// Active reports whether it had work, waiting or executing, at any time of the phase, and
	// Backlogged whether it has some now.
	Active, Backlogged bool
	// NoWork is the part of the phase in which it had no work at all, if that is known. A guest
	// that runs out of work does not saturate the GPU and is entitled to what it uses. Without
	// NoWork a policy goes by how often Backlogged is set.
	NoWork time.Duration
	// Idle is the part of the watched time in which the GPU executed nothing, whichever guests had
	// work. A guest that was not suspended could have used it, whatever Backlogged says: its
	// commands may wait for something else, or it may only pretend to have any.
	Idle time.Duration
	// Running reports whether a command of it is on the GPU now.
	Running bool
	// Suspended reports whether its channels are suspended now, by an earlier verdict.
	Suspended bool
	// Charged is what evictions for its sake cost others since the end of the last phase, less what
	// evictions for others' sake cost it; see [EvictionCharges].
	Charged time.Duration
	// Groups is how many of its channel groups have work now. Its time slices are divided among
	// them.
	Groups int
	// Urgency is the highest priority that its launches may have.
	Urgency int
	// Requests is what it has requested from the GPU. Only policy neon uses it.
	Requests Requests
}

// Requests is what a guest has requested from the GPU since it was attached.
type Requests struct {
	// Completed is how many requests have ended, and Calls how many of them launched a kernel.
	Completed, Calls uint64
	// UnderWay reports whether the GPU has any that have not ended.
	UnderWay bool
	// First is when the GPU was given the first request since the policy was last called, on the
	// clock of Decide's now.
	First time.Duration
}

// Launch is one kernel launch that waits or runs.
type Launch struct {
	ID    LaunchID
	Guest GuestID
	// Context identifies the guest's context that it belongs to. Launches of one context can run
	// side by side on any GPU.
	Context uint64
	// Arrived is when the guest submitted it, on the clock of Decide's now.
	Arrived time.Duration
	// Running reports whether it has the GPU: from its Run verdict until it has ended or left.
	// Otherwise it waits.
	Running bool
	// Evicting reports whether all of it was told to leave the GPU and has not left.
	Evicting bool
	// BelowSM is the bound of the newest Evict since its last Run verdict: other launches have the
	// SMs below it. Zero is none. A Run verdict for a running launch gives these SMs back: what is
	// left of it is launched there too.
	BelowSM uint32
	// Priority is larger for more urgent launches. It is the static priority, limited by the
	// guest's ceiling. A policy may raise it for itself.
	Priority int
	// Blocks is how many thread blocks (or tasks) are left, and PerSM how many of them an SM holds
	// at a time.
	Blocks uint64
	PerSM  uint32
	// Used is how long it has run so far, and Predicted how long it will run in all. Zero is
	// unknown.
	Used, Predicted time.Duration
	// Evictable reports whether it was compiled to leave the GPU when told.
	Evictable bool
	// EvictionCost is the GPU time that evicting it and launching it again is expected to cost: the
	// mean of measured evictions. Zero is unknown, see [AssumedCost].
	EvictionCost time.Duration
}

// Action is what a verdict does.
type Action uint8

const (
	// Run lets a launch that waits go to the GPU.
	Run Action = iota
	// Hold keeps a launch from the GPU.
	Hold
	// Suspend stops fetching a guest's commands.
	Suspend
	// Resume fetches them again.
	Resume
	// Evict takes a running launch off the GPU, or off the SMs below BelowSM.
	Evict
	// Slice sets how long a guest's channel groups run before the next one's turn.
	Slice
)

var actionNames = [...]string{"run", "hold", "suspend", "resume", "evict", "slice"}

// String returns the action's name in logs.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Verdict is one thing to be done. Carrying out a verdict that already holds does nothing.
type Verdict struct {
	Guest  GuestID
	Launch LaunchID // Run, Hold and Evict
	Action Action
	// BelowSM bounds an Evict: blocks on SMs below it leave. math.MaxUint32 is all of them.
	BelowSM uint32
	// For is the guest for whose sake an Evict is, and which is charged what it costs. It is the
	// evicted launch's own guest if that had more than its part, or its slice is over. Of a Suspend
	// for a guarantee it is the guest that is behind it.
	For GuestID
	// Reason is why a Suspend is.
	Reason SuspendReason
	// Spatial tells of an Evict whether taking some of the SMs was enough, and if not, why. Zero
	// means that it was not considered.
	Spatial SpatialUse
	// Slice is the time slice of a Slice verdict.
	Slice time.Duration
}

// Options select a policy's variants. The zero value is the default.
type Options struct {
	// Threshold is the lead over the system's virtual time at which a guest is suspended. Zero
	// stands for: in dfq a quarter of the planned round or, if the GPU has time slices that can be
	// set, five rotations of it (but at least half a round and at most 100 ms); in the baselines a
	// round as it was, as in LoGA.
	Threshold time.Duration
	// Sample is how long neon has each guest run alone in a round. Zero: 1 ms, as in NEON. LoGA's
	// evaluation has 1 ms for each of the guest's channels (§5.1).
	Sample time.Duration
	// MaxOverhead is the part of the GPU's time that ffs may lose, to evictions and to waits for
	// the host between launches. Zero: 0.1, as in FLEP's evaluation (§6.3.3).
	MaxOverhead float64
	// Evictions bounds how many evictions a guest may cause. The zero value is [DefaultRate].
	Evictions Rate
	// Temporal makes evictions always take all SMs.
	Temporal bool
	// AtOnce gives the GPU to a waiting launch as soon as the GPU is free, as in the papers, even
	// if a more urgent launch is likely to come in a moment.
	AtOnce bool
	// HandOver is how long before the predicted end of a launch hpf lets another guest's next one
	// run, so that the GPU need not wait for the host in between. Zero: when it has ended, as in the
	// papers.
	HandOver time.Duration
	// Alone makes a more urgent launch wait for a running one that cannot be evicted. Otherwise
	// both have the GPU, and the hardware has them take turns.
	Alone bool
}

// makers are the constructors of policies by name.
var makers = map[string]func(Options) Policy{
	"none":       func(Options) Policy { return &none{} },
	"dfq":        func(o Options) Policy { return newFairQueue(o) },
	"dfq-loga":   func(o Options) Policy { return newPrinted(o, gpuTime) },
	"loga-cl":    func(o Options) Policy { return newPrinted(o, meanRun) },
	"loga":       func(o Options) Policy { return newReleased(o, gpuTime) },
	"loga-spans": func(o Options) Policy { return newReleased(o, meanRun) },
	"neon":       func(o Options) Policy { return newSampled(o) },
	"fifo":       func(o Options) Policy { return newFIFO(o) },
	"reorder":    func(o Options) Policy { return newReorder(o) },
	"piv":        func(o Options) Policy { return newPIV(o) },
	"hpf":        func(o Options) Policy { return newHPF(o) },
	"dprr":       func(o Options) Policy { return newAging(o) },
	"ffs":        func(o Options) Policy { return newFairFirst(o) },
}

// New returns the policy with a name.
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

// Names returns the names that New accepts.
func Names() []string { return slices.Sorted(maps.Keys(makers)) }
