package ipc

import (
	"math"
	"time"

	"vgpud/mediator/ipc/slotstate"
)

// Claim is a launch slot that an executor holds for a launch. It is a value; the methods of the
// zero value, which holds none, do nothing.
type Claim struct {
	slot   *LaunchSlot
	launch uint64
}

// claimAttempts bounds how often Claim starts again because another executor of the guest took the
// slot that it was about to take.
const claimAttempts = MaxLaunchSlots

// Claim takes a slot for a launch of a context and makes it ready. It uses the fields of v that are
// known before a launch runs: its description, Arrived and Events. It reports false if all slots are taken
// or the page has none.
func (p *ControlPage) Claim(context int, v *Launch) (Claim, bool) {
	if p.launches == nil {
		return Claim{}, false
	}
	for range claimAttempts {
		// The slot that has been free for longest, so that the daemon sees what became of launches
		// that ended.
		var slot *LaunchSlot
		oldest := turn(math.MaxUint64)
		for i := range p.slots {
			t := turn(p.slots[i].l.turn.Load())
			if s := t.state(); (s == slotstate.None || s == slotstate.Done) && t < oldest {
				slot, oldest = &p.slots[i], t
			}
		}
		if slot == nil {
			return Claim{}, false
		}
		next, err := slotstate.Next(oldest.state(), slotstate.Claimed)
		if err != nil {
			return Claim{}, false
		}
		launch := p.launches.newest.Add(1)
		if slot.l.turn.CompareAndSwap(uint64(oldest), uint64(newTurn(launch, context, next))) {
			slot.l.fill(v)
			ready := slot.step(launch, slotstate.Initialised)
			p.WakeDaemon()
			return Claim{slot, launch}, ready
		}
	}
	return Claim{}, false
}

// fill writes the description of a launch.
func (l *slotLayout) fill(v *Launch) {
	l.asked.Store(0)
	l.deadline.Store(0)
	l.belowSM.Store(0)
	l.kernel.Store(v.Kernel)
	l.inputBytes.Store(v.InputBytes)
	l.arrived.Store(int64(v.Arrived))
	l.predicted.Store(int64(v.Predicted))
	l.priority.Store(uint32(v.Priority))
	l.form.Store(v.Form)
	l.blocks.Store(v.Blocks)
	l.perSM.Store(v.PerSM)
	l.tasks.Store(v.Tasks)
	l.threads.Store(v.Threads)
	l.sharedBytes.Store(v.SharedBytes)
	storeBool(&l.evictable, v.Evictable)
	l.started.Store(0)
	l.stopped.Store(0)
	l.used.Store(0)
	l.evictions.Store(0)
	l.failed.Store(0)
	l.events.Store(uint32(v.Events))
}

// Held reports whether there is a slot.
func (c Claim) Held() bool { return c.slot != nil }

// live reports whether the launch still has the slot.
func (c Claim) live() bool {
	s := c.State()
	return s != slotstate.None && s != slotstate.Done
}

// Launch returns the launch's number.
func (c Claim) Launch() uint64 { return c.launch }

// State returns the launch's state. If another launch has the slot, or its state is none of
// [slotstate], vm has freed the slot, and State returns [slotstate.Done].
func (c Claim) State() slotstate.State {
	if c.slot == nil {
		return slotstate.None
	}
	launch, state := c.slot.State()
	if launch != c.launch || !state.Valid() {
		return slotstate.Done
	}
	return state
}

// EvictionRequest returns the daemon's last request that the launch leave.
func (c Claim) EvictionRequest() (belowSM uint32, asked, deadline time.Duration) {
	if c.slot == nil {
		return 0, 0, 0
	}
	l := c.slot.l
	return l.belowSM.Load(), time.Duration(l.asked.Load()), time.Duration(l.deadline.Load())
}

// Grant gives a launch that is ready its turn, in the daemon's place, and reports whether the
// launch has its turn.
func (c Claim) Grant() bool {
	return c.live() && (c.slot.step(c.launch, slotstate.Scheduled) || c.State().OnGPU())
}

// Started reports whether the launch was put on the GPU in its present turn.
func (c Claim) Started() bool {
	return c.State().OnGPU() && c.slot.l.started.Load() > c.slot.l.stopped.Load()
}

// Start records that the launch is on the GPU from now on. It is called before the launch is put
// there, and reports false if the launch must not be: the daemon has just taken its turn back. A
// launch without a slot needs no turn.
func (c Claim) Start(now time.Duration) bool {
	if !c.live() {
		return true
	}
	l := c.slot.l
	before := l.started.Load()
	l.started.Store(max(int64(now), l.stopped.Load()+1)) // see Started
	if !c.slot.step(c.launch, slotstate.Launched) && c.live() {
		l.started.Store(before)
		return false
	}
	return true
}

// Begin records that the launch, which was put on the GPU behind another one, has the GPU from now
// on.
func (c Claim) Begin(now time.Duration) {
	if c.Started() {
		c.slot.l.started.Store(max(int64(now), c.slot.l.started.Load()))
	}
}

// Leave records that the launch left the GPU with work undone, or gave its turn up without having
// started. used is its GPU time so far.
func (c Claim) Leave(at, used time.Duration) {
	if !c.live() {
		return
	}
	l := c.slot.l
	l.stopped.Store(max(int64(at), l.started.Load())) // see Started
	l.used.Store(int64(used))
	l.evictions.Add(1)
	c.slot.step(c.launch, slotstate.Evicted)
	c.slot.page.WakeDaemon()
}

// SetEvictable records whether the launch leaves when asked.
func (c Claim) SetEvictable(evictable bool) {
	if c.live() {
		storeBool(&c.slot.l.evictable, evictable)
	}
}

// SetEvents records what event kernels have on the GPU, and tells the daemon of those that no longer
// need it.
func (c Claim) SetEvents(u EventUse) {
	if c.live() {
		c.slot.l.events.Store(uint32(u))
		if u == EventsIdle {
			c.slot.page.WakeDaemon()
		}
	}
}

// Finish records that all of the launch is done, and gives the slot up. used is its GPU time.
func (c Claim) Finish(used time.Duration) { c.end(used, slotstate.Finished) }

// Abandon records that the launch ended with its context or channel, and gives the slot up.
func (c Claim) Abandon(used time.Duration) {
	if c.live() {
		c.slot.l.failed.Store(1)
	}
	c.end(used, slotstate.Abandoned)
}

func (c Claim) end(used time.Duration, why slotstate.Cause) {
	if !c.live() {
		return
	}
	c.slot.l.used.Store(int64(used))
	c.slot.step(c.launch, why)
	c.slot.page.WakeDaemon()
}

// FreeLaunchSlots ends the launches of a context whose executor is gone, or has just started: what
// the context had on the GPU ended with the executor. It also ends launches of contexts with
// impossible numbers. vm and exec call it.
func (p *ControlPage) FreeLaunchSlots(context int) {
	if p.launches == nil {
		return
	}
	freed := false
	for i := range p.slots {
		freed = p.slots[i].free(context) || freed
	}
	if freed {
		p.WakeDaemon()
	}
}

// free ends the slot's launch, in whatever state, if its context is context or impossible. It
// reports whether there was one.
func (s *LaunchSlot) free(context int) bool {
	for {
		t := turn(s.l.turn.Load())
		if t.state() == slotstate.None || t.state() == slotstate.Done || t.context() != context && t.context() < MaxContexts {
			return false
		}
		s.l.failed.Store(1)
		if s.l.turn.CompareAndSwap(uint64(t), uint64(t.with(slotstate.Done))) {
			return true
		}
	}
}
