package ipc

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"vgpud/mediator/ipc/slotstate"
)

// MaxLaunchSlots is how many launches of a guest the daemon can know one by one.
const MaxLaunchSlots = 64

// UnresponsiveLimit is how long after the daemon's request to leave a launch may stay on the GPU
// where only the end of its context takes it off. A later deadline of the daemon's holds instead.
const UnresponsiveLimit = time.Second

// ErrNoLaunchSlots reports that a guest's control page is of the version that had no slots.
var ErrNoLaunchSlots = errors.New("guest's page has no launch slots: its vm process is of an older version of vgpud")

// Layout of the launches' part of the page.
const (
	launchAreaBytes = 3*lineBytes + MaxLaunchSlots*slotBytes
	slotBytes       = 4 * lineBytes
)

// launchArea follows the contexts on the page.
type launchArea struct {
	// Written by serve.
	mode      atomic.Uint32
	busyWait  atomic.Uint32
	caused    atomic.Uint64
	charged   atomic.Int64
	pollLimit atomic.Uint32 // microseconds; zero with a daemon of an older version
	_         uint32
	turn      atomic.Int64 // see Turn; zero with a daemon of an older version
	_         [lineBytes - 40]byte

	// Woken by exec; serve sleeps on it.
	futex futexWord
	_     [lineBytes - 8]byte

	// Added to by exec: the number of the newest launch.
	newest atomic.Uint64
	_      [lineBytes - 8]byte

	slots [MaxLaunchSlots]slotLayout
}

// slotLayout is a launch slot. Each word has the size and alignment of its type in memory. The
// three parts lie on cache lines of their own.
type slotLayout struct {
	// turn is changed by compare and swap. serve makes the transitions Scheduled, Withdrawn, Asked
	// and Recalled; exec the others, and Scheduled where serve is silent or the mode is ModeFree;
	// vm Abandoned after exec's end.
	turn atomic.Uint64
	_    [lineBytes - 8]byte

	// Written by serve before it asks a launch to leave, and zeroed by exec when it claims the
	// slot.
	asked    atomic.Int64
	deadline atomic.Int64
	belowSM  atomic.Uint32
	_        [lineBytes - 20]byte

	// Written by exec before Ready.
	kernel      atomic.Uint64
	inputBytes  atomic.Uint64
	arrived     atomic.Int64
	predicted   atomic.Int64
	priority    atomic.Uint32
	form        atomic.Uint32
	blocks      atomic.Uint32
	perSM       atomic.Uint32
	tasks       atomic.Uint32
	threads     atomic.Uint32
	sharedBytes atomic.Uint32
	// Written by exec before the transition that each belongs to.
	evictable atomic.Uint32
	started   atomic.Int64
	stopped   atomic.Int64
	used      atomic.Int64
	evictions atomic.Uint32
	failed    atomic.Uint32
	events    atomic.Uint32 // see EventUse; zero with executors of older versions
	_         [2*lineBytes - 100]byte
}

// turn identifies a launch and its state in one word, so that no process changes the state of
// another launch than it means. It has the launch's number in the upper 48 bits, its context in the
// next 8, and its state in the lowest 8. The numbers last for nine years of a million launches a
// second.
type turn uint64

func newTurn(launch uint64, context int, s slotstate.State) turn {
	return turn(launch<<16 | uint64(uint8(context))<<8 | uint64(s))
}

func (t turn) launch() uint64         { return uint64(t >> 16) }
func (t turn) context() int           { return int(uint8(t >> 8)) }
func (t turn) state() slotstate.State { return slotstate.State(uint8(t)) }

// with returns the word in state s.
func (t turn) with(s slotstate.State) turn { return t&^0xff | turn(s) }

// LaunchSlot is one launch slot of a page. Run, Withdraw, Evict and Recall are the daemon's, and
// belong to one goroutine for each page.
type LaunchSlot struct {
	page *ControlPage
	l    *slotLayout // nil on a page of version 1
}

// HasLaunchSlots reports whether the page has launch slots. One of an older version of vgpud has
// none; its guest's launches don't wait for turns and can't be told to leave.
func (p *ControlPage) HasLaunchSlots() bool { return p.launches != nil }

// LaunchSlot returns slot i of the page, 0 to MaxLaunchSlots-1. It is valid while the page is open.
func (p *ControlPage) LaunchSlot(i int) *LaunchSlot { return &p.slots[i] }

// Launch is the content of a launch slot at one moment.
type Launch struct {
	// ID is the launch's number. It is unique in the guest for its page's life; numbers ascend in
	// the order in which executors took up launches.
	ID      uint64
	Context int
	State   slotstate.State

	// Form is the preemptible form (abi.PreemptForm), 0 for a plain kernel. Evictable reports
	// whether the launch leaves when asked: it has such a form, and its kernel is not known to be
	// unresponsive.
	Form      uint32
	Evictable bool
	// Priority is the launch's urgency from 0 to 15, the highest being the most urgent. It is never
	// above the guest's ceiling (EffiSha §6.4).
	Priority int

	// Blocks is how many blocks the GPU is given, PerSM how many of them an SM holds at a time, and
	// Tasks how many blocks the kernel's own grid has. For a plain kernel Tasks equals Blocks.
	Blocks, PerSM, Tasks uint32
	// Threads and SharedBytes are a block's. InputBytes is the size of the allocations that the
	// launch's arguments name.
	Threads, SharedBytes uint32
	InputBytes           uint64
	// Kernel identifies a kernel by its content, in all guests and for good.
	Kernel uint64

	// Arrived is when the launch first became ready, Started when it was last put on the GPU, and
	// Stopped when it last left the GPU, or gave up its turn, with work undone. They are instants
	// of clock.Real.
	Arrived, Started, Stopped time.Duration
	// Used is the GPU time of the launch's ended runs, by the GPU's timestamps. Predicted is the
	// mean of what its kernel took here, 0 where it has not run yet.
	Used, Predicted time.Duration
	Evictions       uint32
	// Failed reports of a launch that is done that it was abandoned.
	Failed bool

	// Events tells a slot of event kernels from one of a launch.
	Events EventUse

	// Asked, Deadline and BelowSM are the daemon's last request to leave.
	Asked, Deadline time.Duration
	BelowSM         uint32
}

// EventUse is the use that a context's event kernels make of a launch slot. They have one turn
// together, for as long as something of them is on the GPU.
type EventUse uint32

const (
	// NoEvents: the slot is a launch's.
	NoEvents EventUse = iota
	// EventsBusy: events are under way, or wait for the turn.
	EventsBusy
	// EventsIdle: the event kernels are on the GPU without an event, and leave it when told.
	EventsIdle
)

// readAttempts bounds how often Read starts again because the launch went on meanwhile.
const readAttempts = 8

// Read reads the slot. It reports false if the slot has no launch, or one that is not ready yet, if it
// kept changing, or if it has values that are impossible. The result belongs to one launch, though it
// may have words of the state that the launch is about to enter.
func (s *LaunchSlot) Read() (Launch, bool) {
	if s.l == nil {
		return Launch{}, false
	}
	for range readAttempts {
		t := turn(s.l.turn.Load())
		if t.state() <= slotstate.Prep || !t.state().Valid() || t.context() >= MaxContexts {
			return Launch{}, false
		}
		v := Launch{
			ID: t.launch(), Context: t.context(), State: t.state(),
			Form: s.l.form.Load(), Evictable: s.l.evictable.Load() != 0, Priority: int(s.l.priority.Load()),
			Blocks: s.l.blocks.Load(), PerSM: s.l.perSM.Load(), Tasks: s.l.tasks.Load(),
			Threads: s.l.threads.Load(), SharedBytes: s.l.sharedBytes.Load(), InputBytes: s.l.inputBytes.Load(),
			Kernel:  s.l.kernel.Load(),
			Arrived: time.Duration(s.l.arrived.Load()), Started: time.Duration(s.l.started.Load()), Stopped: time.Duration(s.l.stopped.Load()),
			Used: time.Duration(s.l.used.Load()), Predicted: time.Duration(s.l.predicted.Load()),
			Evictions: s.l.evictions.Load(), Failed: s.l.failed.Load() != 0, Events: min(EventUse(s.l.events.Load()), EventsIdle),
			Asked: time.Duration(s.l.asked.Load()), Deadline: time.Duration(s.l.deadline.Load()), BelowSM: s.l.belowSM.Load(),
		}
		if turn(s.l.turn.Load()) == t {
			return v, true
		}
	}
	return Launch{}, false
}

// State returns the number and the state of the launch that has the slot, as they are written.
func (s *LaunchSlot) State() (launch uint64, state slotstate.State) {
	if s.l == nil {
		return 0, slotstate.None
	}
	t := turn(s.l.turn.Load())
	return t.launch(), t.state()
}

// step makes a transition of a launch. It reports false if another launch has the slot, or the
// launch's state does not allow the transition.
func (s *LaunchSlot) step(launch uint64, c slotstate.Cause) bool {
	if s.l == nil {
		return false
	}
	for {
		t := turn(s.l.turn.Load())
		if t.launch() != launch {
			return false
		}
		next, err := slotstate.Next(t.state(), c)
		if err != nil {
			return false
		}
		if s.l.turn.CompareAndSwap(uint64(t), uint64(t.with(next))) {
			return true
		}
	}
}

// Run gives a launch that is ready its turn, and wakes its executor. It reports false if the launch
// is not ready, or gone.
func (s *LaunchSlot) Run(launch uint64) bool {
	return s.step(launch, slotstate.Scheduled) && s.wakeExecutor()
}

// Withdraw takes an unused turn back from a launch. It reports false if the launch has used it, or
// is gone.
func (s *LaunchSlot) Withdraw(launch uint64) bool { return s.step(launch, slotstate.Withdrawn) }

// Evict tells a launch that has its turn or is running to leave the SMs with numbers below belowSM,
// or all SMs with math.MaxUint32, and wakes its executor. It also tells a launch that was told to
// leave some SMs to leave more. now and deadline are instants of clock.Real. A launch that was to
// leave all SMs and is still there at the deadline is unresponsive; 0 is no deadline. Evict reports
// false if the launch has no turn, was told to leave as many SMs, or is gone.
//
// A launch that has not started, and is to leave all SMs, gives its turn up without starting. An
// executor of an older version does not expect that. In its place Evict takes the turn back and
// counts an eviction.
func (s *LaunchSlot) Evict(launch uint64, belowSM uint32, now, deadline time.Duration) bool {
	l, state := s.State()
	more := state == slotstate.ToEvict && belowSM > s.l.belowSM.Load()
	if l != launch || state != slotstate.Running && state != slotstate.ToRun && !more {
		return false
	}
	if state == slotstate.ToRun && !s.executorIsNew() {
		return s.withdrawFor(launch, belowSM, now)
	}
	// Should the launch end here, the words mean nothing to the next one.
	s.l.asked.Store(int64(now))
	s.l.deadline.Store(int64(deadline))
	s.l.belowSM.Store(belowSM)
	return (more || s.step(launch, slotstate.Asked)) && s.wakeExecutor()
}

// executorIsNew reports whether the launch's executor lets it leave before it has started.
func (s *LaunchSlot) executorIsNew() bool {
	c := turn(s.l.turn.Load()).context()
	return c < MaxContexts && s.page.Context(c).leavesUnstarted.Load() != 0
}

// withdrawFor takes the turn back from a launch that is to leave all SMs, in the place of an
// executor of an older version.
func (s *LaunchSlot) withdrawFor(launch uint64, belowSM uint32, now time.Duration) bool {
	if belowSM != math.MaxUint32 || !s.step(launch, slotstate.Withdrawn) {
		return false
	}
	s.l.stopped.Store(max(int64(now), s.l.started.Load()))
	s.l.evictions.Add(1)
	s.page.WakeDaemon()
	return true
}

// Recall tells a launch that was told to leave that it may stay, and take the SMs that it has left,
// and wakes its executor. It reports false if the launch was not told to leave, or has left.
func (s *LaunchSlot) Recall(launch uint64) bool {
	return s.step(launch, slotstate.Recalled) && s.wakeExecutor()
}

// wakeExecutor wakes the executor of the slot's launch. It returns true.
func (s *LaunchSlot) wakeExecutor() bool {
	if c := turn(s.l.turn.Load()).context(); c < MaxContexts {
		s.page.Context(c).Wake()
	}
	return true
}

// storeBool stores 1 for true and 0 for false.
func storeBool(w *atomic.Uint32, b bool) {
	var v uint32
	if b {
		v = 1
	}
	storeWord(w, v)
}
