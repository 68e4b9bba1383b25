package ipc

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"vgpud/mediator/ipc/slotstate"
)

// MaxStubs is how many launches of a guest can be known to the daemon one by one.
const MaxStubs = 64

// Limits of what a launch waits for.
const (
	// SilenceLimit is how long after the daemon's last heartbeat an executor gives
	// its launches their turns itself.
	SilenceLimit = 100 * time.Millisecond
	// LiarLimit is how long after it was told to leave a launch may be on the GPU
	// where nothing but ending its context gets it off; longer only where the
	// daemon's own deadline is.
	LiarLimit = time.Second
)

// ErrNoStubs says that a guest's page is of the version that had none.
var ErrNoStubs = errors.New("guest's page has no stubs: its vm process is of an older version of vgpud")

// Mode is what the daemon decides about.
type Mode uint32

const (
	// ModeFree: guests. A launch does not wait for the daemon; one that is
	// preemptible can be told to leave.
	ModeFree Mode = iota
	// ModeByKernel: launches. Each waits until it is told to run.
	ModeByKernel
	// ModeAhead: launches, and none of another guest's goes before this one's most
	// urgent. These tell of themselves and don't wait. To an executor of the version
	// before it is ModeByKernel.
	ModeAhead
)

// Layout of the stubs' part of the page.
const (
	stubAreaBytes = 3*lineBytes + MaxStubs*stubBytes
	stubBytes     = 4 * lineBytes
)

// stubArea follows the contexts on the page.
type stubArea struct {
	// Written by serve.
	mode    atomic.Uint32
	spins   atomic.Uint32
	caused  atomic.Uint64
	charged atomic.Int64
	polls   atomic.Uint32 // microseconds; zero with a daemon of an older version
	_       [lineBytes - 28]byte

	// Rung by exec; serve sleeps on it.
	bell bell
	_    [lineBytes - 8]byte

	// Added to by exec: the number of the newest launch.
	launches atomic.Uint64
	_        [lineBytes - 8]byte

	stubs [MaxStubs]stubLayout
}

// stubLayout is a stub. Each word is of the size and alignment that its type has
// in memory; the three parts lie on lines of their own.
type stubLayout struct {
	// turn is the launch's number, its context and its state in one word, so that
	// nobody changes the state of a launch that it does not mean: see [turn]. By
	// compare and swap: serve makes the transitions Scheduled, Withdrawn, Asked and Recalled,
	// exec the others (and Scheduled where serve is silent or the mode is ModeFree), vm
	// Abandoned after exec's death.
	turn atomic.Uint64
	_    [lineBytes - 8]byte

	// Written by serve before it asks a launch to leave, and zeroed by exec when it
	// claims the stub.
	asked    atomic.Int64
	deadline atomic.Int64
	belowSM  atomic.Uint32
	_        [lineBytes - 20]byte

	// Written by exec: before Ready.
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
	// Written by exec: before the transition that it belongs to.
	evictable atomic.Uint32
	started   atomic.Int64
	left      atomic.Int64
	used      atomic.Int64
	evictions atomic.Uint32
	failed    atomic.Uint32
	_         [2*lineBytes - 96]byte
}

// turn is the word that says whose stub it is and where the launch stands: the
// launch's number in the upper 48 bits, its context in the next 8, the state in
// the lowest 8. Nobody launches 2⁴⁸ kernels: a million a second take nine years.
type turn uint64

func newTurn(launch uint64, context int, s slotstate.State) turn {
	return turn(launch<<16 | uint64(uint8(context))<<8 | uint64(s))
}

func (t turn) launch() uint64         { return uint64(t >> 16) }
func (t turn) context() int           { return int(uint8(t >> 8)) }
func (t turn) state() slotstate.State { return slotstate.State(uint8(t)) }

// with is the word in another state.
func (t turn) with(s slotstate.State) turn { return t&^0xff | turn(s) }

// SetMode says what the daemon decides about, and wakes the guest's executors
// where that is new. The daemon calls it, and Beats as long as it is to hold.
func (p *Page) SetMode(m Mode) {
	if p.area == nil || Mode(p.area.mode.Swap(uint32(m))) == m {
		return
	}
	for i := range p.l.contexts {
		p.Context(i).Ring()
	}
}

// Mode is what the daemon decides about, as it wrote it.
func (p *Page) Mode() Mode {
	if p.area == nil {
		return ModeFree
	}
	if m := Mode(p.area.mode.Load()); m <= ModeAhead {
		return m
	}
	return ModeByKernel // as versions before took what they did not know
}

// SetSpins says whether executors with a kernel that may be told to leave look for
// that all the time. The daemon calls it.
func (p *Page) SetSpins(yes bool) {
	if p.area == nil {
		return
	}
	if old := p.area.spins.Load() != 0; old != yes {
		storeBool(&p.area.spins, yes)
		for i := range p.l.contexts {
			p.Context(i).Ring()
		}
	}
}

// Spins is what SetSpins said.
func (p *Page) Spins() bool { return p.area != nil && p.area.spins.Load() != 0 }

// MaxPollLimit bounds what SetPollLimit says, whoever wrote the page.
const MaxPollLimit = 20 * time.Millisecond

// SetPollLimit says for how long an executor of the guest may poll in one wait, where that
// saves it from sleeping; 0 leaves it to the executor. The daemon calls it.
func (p *Page) SetPollLimit(d time.Duration) {
	if p.area == nil {
		return
	}
	v := uint32(min(max(d, 0), MaxPollLimit) / time.Microsecond)
	if p.area.polls.Load() != v {
		p.area.polls.Store(v)
	}
}

// PollLimit returns what SetPollLimit said, at most [MaxPollLimit].
func (p *Page) PollLimit() time.Duration {
	if p.area == nil {
		return 0
	}
	return min(time.Duration(p.area.polls.Load())*time.Microsecond, MaxPollLimit)
}

// Silent is whether the daemon has been so for [SilenceLimit] at now, an instant
// of clock.Real.
func (p *Page) Silent(now time.Duration) bool {
	return now-time.Duration(p.l.heartbeat.Load()) > SilenceLimit
}

// HasStubs is whether the page has stubs. One of an older version of vgpud does
// not; its guest's launches don't wait and can't be told to leave.
func (p *Page) HasStubs() bool { return p.area != nil }

// Stub is stub i of the page, 0 to MaxStubs-1. It is good while the page is open.
func (p *Page) Stub(i int) *StubSlot { return &p.stubs[i] }

// StubSlot is one stub of a page. Run, Withdraw, Evict and Refill are the daemon's; they
// belong to one goroutine for each page.
type StubSlot struct {
	page *Page
	l    *stubLayout // nil on a page of version 1
}

// Stub is what a stub said at a moment.
type Stub struct {
	// Launch is the launch's number: unique in the guest for its page's life, and
	// ascending in the order in which executors took up launches.
	Launch  uint64
	Context int
	State   slotstate.State

	// Form is the preemptible form (abi.PreemptForm), 0 for a plain kernel.
	// Evictable is whether the launch leaves when asked: it is in such a form, and
	// that is not known to be a lie.
	Form      uint32
	Evictable bool
	// Priority is how urgent the launch is, 0 to 15, larger is more; never above
	// the guest's ceiling (EffiSha §6.4).
	Priority int

	// Blocks is how many blocks the GPU is given, PerSM how many of them an SM
	// holds at a time, Tasks how many the kernel's own grid has, which is as many
	// where the kernel is plain.
	Blocks, PerSM, Tasks uint32
	// Threads and SharedBytes are a block's; InputBytes are those of the
	// allocations that the launch's arguments name.
	Threads, SharedBytes uint32
	InputBytes           uint64
	// Kernel tells kernels apart by content, in all guests and for good.
	Kernel uint64

	// Arrived is when the launch became ready for the first time, Started when it
	// was last put on the GPU, Left when it was last seen to have left it with
	// work undone: instants of clock.Real.
	Arrived, Started, Left time.Duration
	// Used is the GPU time of its runs that have ended, by the GPU's stamps;
	// Predicted is what its kernel took on the average here, 0 where it has not
	// run yet.
	Used, Predicted time.Duration
	Evictions       uint32
	// Failed says of one that is done that it was abandoned.
	Failed bool

	// Asked, Deadline and BelowSM are what the daemon last said to it.
	Asked, Deadline time.Duration
	BelowSM         uint32
}

// readTries bounds how often Read begins anew because the launch went on.
const readTries = 8

// Read reads the stub. It reports false where that is nobody's, or not ready yet,
// or kept changing, or says what can't be. What is read belongs to one launch, though words of the state
// that it is about to enter may be there already.
func (s *StubSlot) Read() (Stub, bool) {
	if s.l == nil {
		return Stub{}, false
	}
	for range readTries {
		t := turn(s.l.turn.Load())
		if t.state() <= slotstate.Prep || !t.state().Valid() || t.context() >= MaxContexts {
			return Stub{}, false
		}
		v := Stub{
			Launch: t.launch(), Context: t.context(), State: t.state(),
			Form: s.l.form.Load(), Evictable: s.l.evictable.Load() != 0, Priority: int(s.l.priority.Load()),
			Blocks: s.l.blocks.Load(), PerSM: s.l.perSM.Load(), Tasks: s.l.tasks.Load(),
			Threads: s.l.threads.Load(), SharedBytes: s.l.sharedBytes.Load(), InputBytes: s.l.inputBytes.Load(),
			Kernel:  s.l.kernel.Load(),
			Arrived: time.Duration(s.l.arrived.Load()), Started: time.Duration(s.l.started.Load()), Left: time.Duration(s.l.left.Load()),
			Used: time.Duration(s.l.used.Load()), Predicted: time.Duration(s.l.predicted.Load()),
			Evictions: s.l.evictions.Load(), Failed: s.l.failed.Load() != 0,
			Asked: time.Duration(s.l.asked.Load()), Deadline: time.Duration(s.l.deadline.Load()), BelowSM: s.l.belowSM.Load(),
		}
		if turn(s.l.turn.Load()) == t {
			return v, true
		}
	}
	return Stub{}, false
}

// State is where the launch that has the stub now stands, and which it is, as that is
// written.
func (s *StubSlot) State() (launch uint64, state slotstate.State) {
	if s.l == nil {
		return 0, slotstate.None
	}
	t := turn(s.l.turn.Load())
	return t.launch(), t.state()
}

// step makes a transition of a launch. It reports false where the stub is
// another's by now, or its state allows it not.
func (s *StubSlot) step(launch uint64, c slotstate.Cause) bool {
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

// Run gives a launch that is ready its turn, and wakes its executor. It reports
// false where the launch is not ready, or gone.
func (s *StubSlot) Run(launch uint64) bool {
	if !s.step(launch, slotstate.Scheduled) {
		return false
	}
	s.ringContext()
	return true
}

// Withdraw takes its turn back from a launch that has not used it. It reports false
// where it has, or is gone.
func (s *StubSlot) Withdraw(launch uint64) bool { return s.step(launch, slotstate.Withdrawn) }

// Evict tells a launch that is running, or has its turn, to leave the SMs with numbers below
// belowSM, all of them with math.MaxUint32, or one that was told to leave some to
// leave more, and wakes its executor. now and deadline are instants of clock.Real;
// a launch that was to leave all SMs and is still there at the deadline is found to
// lie, 0 is never. It reports false where the launch does not have its turn, or leaves as
// many already, or is gone.
//
// A launch that has not begun, and is to leave all SMs, leaves without having begun.
// Executors of older versions don't know that a launch can be told to leave before it has
// begun; from theirs the turn is taken back, and counted as an eviction.
func (s *StubSlot) Evict(launch uint64, belowSM uint32, now, deadline time.Duration) bool {
	l, state := s.State()
	more := state == slotstate.ToEvict && belowSM > s.l.belowSM.Load()
	if l != launch || state != slotstate.Running && state != slotstate.ToRun && !more {
		return false
	}
	if state == slotstate.ToRun && !s.honoursUnbegun() {
		return s.evictUnbegun(launch, belowSM, now)
	}
	// Should the launch end here, the words are of no meaning to the next.
	s.l.asked.Store(int64(now))
	s.l.deadline.Store(int64(deadline))
	s.l.belowSM.Store(belowSM)
	if !more && !s.step(launch, slotstate.Asked) {
		return false
	}
	s.ringContext()
	return true
}

// honoursUnbegun reports whether the executor of the slot's launch lets it leave before it
// has begun.
func (s *StubSlot) honoursUnbegun() bool {
	c := turn(s.l.turn.Load()).context()
	return c < MaxContexts && s.page.Context(c).unbegun.Load() != 0
}

// evictUnbegun takes its turn back from a launch that has not begun and is to leave all SMs,
// in place of an executor of an older version.
func (s *StubSlot) evictUnbegun(launch uint64, belowSM uint32, now time.Duration) bool {
	if belowSM != math.MaxUint32 || !s.step(launch, slotstate.Withdrawn) {
		return false
	}
	s.l.left.Store(max(int64(now), s.l.started.Load()))
	s.l.evictions.Add(1)
	s.page.RingServe()
	return true
}

// Refill tells a launch that was told to leave that it may stay, and take the SMs
// that it left, and wakes its executor. It reports false where the launch was not,
// or has left.
func (s *StubSlot) Refill(launch uint64) bool {
	if !s.step(launch, slotstate.Recalled) {
		return false
	}
	s.ringContext()
	return true
}

// ringContext wakes the executor whose launch the stub is.
func (s *StubSlot) ringContext() {
	if c := turn(s.l.turn.Load()).context(); c < MaxContexts {
		s.page.Context(c).Ring()
	}
}

func storeBool(w *atomic.Uint32, yes bool) {
	var v uint32
	if yes {
		v = 1
	}
	w.Store(v)
}
