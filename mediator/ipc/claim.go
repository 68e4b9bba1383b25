package ipc

import (
	"math"
	"time"

	"vgpud/mediator/ipc/slotstate"
)

// Claim is an executor's hold on a launch's stub. It is a value; the zero value
// is none, of which every method says and does nothing.
type Claim struct {
	slot   *StubSlot
	launch uint64
}

// claimTries bounds how often Claim begins anew because another executor of the
// guest took the stub that it was about to take.
const claimTries = MaxStubs

// Claim takes a stub for a launch of a context and makes it ready. Of v, the part
// that is known before a launch runs is taken: what is said of it, and Arrived.
// It fails where all stubs are taken or the page has none.
func (p *Page) Claim(context int, v *Stub) (Claim, bool) {
	if p.area == nil {
		return Claim{}, false
	}
	for range claimTries {
		// The one that has been free for longest, so that the daemon sees what has
		// become of the launches that ended.
		var slot *StubSlot
		oldest := turn(math.MaxUint64)
		for i := range p.stubs {
			t := turn(p.stubs[i].l.turn.Load())
			if s := t.state(); (s == slotstate.None || s == slotstate.Done) && t < oldest {
				slot, oldest = &p.stubs[i], t
			}
		}
		if slot == nil {
			return Claim{}, false
		}
		next, err := slotstate.Next(oldest.state(), slotstate.Claimed)
		if err != nil {
			return Claim{}, false
		}
		launch := p.area.launches.Add(1)
		if slot.l.turn.CompareAndSwap(uint64(oldest), uint64(newTurn(launch, context, next))) {
			slot.l.fill(v)
			ready := slot.step(launch, slotstate.Initialised)
			if p.Mode() != ModeFree {
				p.RingServe()
			}
			return Claim{slot, launch}, ready
		}
	}
	return Claim{}, false
}

// fill writes what is said of a launch before it is ready.
func (l *stubLayout) fill(v *Stub) {
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
	l.left.Store(0)
	l.used.Store(0)
	l.evictions.Store(0)
	l.failed.Store(0)
}

// Held is whether there is a stub.
func (c Claim) Held() bool { return c.slot != nil }

// live is whether the stub is still the launch's.
func (c Claim) live() bool {
	s := c.State()
	return s != slotstate.None && s != slotstate.Done
}

// Launch is the launch's number.
func (c Claim) Launch() uint64 { return c.launch }

// State is where the launch stands. Another's stub says [slotstate.Done], as does one in
// no state at all: vm has taken this one's back.
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

// Word is what the daemon said when it last asked the launch to leave.
func (c Claim) Word() (belowSM uint32, asked, deadline time.Duration) {
	if c.slot == nil {
		return 0, 0, 0
	}
	l := c.slot.l
	return l.belowSM.Load(), time.Duration(l.asked.Load()), time.Duration(l.deadline.Load())
}

// Grant gives a launch that is ready its turn where the daemon does not, and
// reports whether it has it.
func (c Claim) Grant() bool {
	return c.live() && (c.slot.step(c.launch, slotstate.Scheduled) || c.State().OnGPU())
}

// Begun reports whether the launch was put on the GPU in the turn that it has now.
func (c Claim) Begun() bool {
	return c.State().OnGPU() && c.slot.l.started.Load() > c.slot.l.left.Load()
}

// Start says that the launch is on the GPU since now. It also does so for one whose turn the
// daemon has just taken back, and for one that was told to leave before it began: it is on
// the GPU all the same.
func (c Claim) Start(now time.Duration) {
	if !c.live() {
		return
	}
	l := c.slot.l
	l.started.Store(max(int64(now), l.left.Load()+1)) // see Begun
	c.slot.step(c.launch, slotstate.Launched)
}

// Leave says that it had left the GPU at an instant, or given up its turn without having
// begun, with work undone, after using the GPU for used in all.
func (c Claim) Leave(at, used time.Duration) {
	if !c.live() {
		return
	}
	l := c.slot.l
	l.left.Store(max(int64(at), l.started.Load())) // see Begun
	l.used.Store(int64(used))
	l.evictions.Add(1)
	c.slot.step(c.launch, slotstate.Left)
	c.slot.page.RingServe()
}

// SetEvictable says whether it leaves when asked.
func (c Claim) SetEvictable(yes bool) {
	if c.live() {
		storeBool(&c.slot.l.evictable, yes)
	}
}

// Finish says that all of it is done, after using the GPU for used in all. The
// stub is given up.
func (c Claim) Finish(used time.Duration) { c.end(used, slotstate.Finished) }

// Abandon says that it has ended with its context or channel. The stub is given
// up.
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
	c.slot.page.RingServe()
}

// FreeStubs gives back the stubs of a context whose executor is gone, or has just
// begun: whatever it had on the GPU ended with it. So are stubs of contexts that there
// can't be, whoever wrote that. vm calls it, and exec.
func (p *Page) FreeStubs(context int) {
	if p.area == nil {
		return
	}
	freed := false
	for i := range p.stubs {
		freed = p.stubs[i].free(context) || freed
	}
	if freed {
		p.RingServe()
	}
}

// free ends the launch that has the stub, whatever state it is in, known or not, if it
// is the context's or nobody's. It reports whether there was one.
func (s *StubSlot) free(context int) bool {
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
