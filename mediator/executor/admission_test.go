package executor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// manyContexts is a guest with some contexts on a GPU that finishes commands only when let is
// called.
type manyContexts struct {
	t    *testing.T
	sim  clock.Sim
	page *ipc.ControlPage
	all  []*member
}

type member struct {
	*rig
	ctx  *slowFills
	ends []*guestEnd
	fn   uint64
}

func newManyContexts(t *testing.T, contexts, channels int) *manyContexts {
	t.Helper()
	c := &manyContexts{t: t}
	c.sim.Advance(time.Hour)
	for i := range contexts {
		r := newFakeRig(t)
		if c.page == nil {
			c.page = r.page
		}
		ctx := &slowFills{Context: r.ctx}
		r.x = New(Options{
			Device: fakeGPU{}, Context: ctx, Shared: r.shared, Windows: r.header + r.rings, Page: c.page, Slot: i, Clock: &c.sim,
			KernelTimeLimit: time.Second,
		})
		c.page.Context(i).Reset(1)
		c.page.AddChange()
		m := &member{rig: r, ctx: ctx}
		for range channels {
			m.ends = append(m.ends, r.open())
		}
		m.fn = m.ends[0].load("fake", "plain")
		c.all = append(c.all, m)
	}
	return c
}

// launch has every channel of every context launch n kernels.
func (c *manyContexts) launch(n int) {
	for _, m := range c.all {
		for _, g := range m.ends {
			for range n {
				l, params := launchOf(m.fn, 32, 1)
				g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
			}
		}
	}
}

// step steps every executor.
func (c *manyContexts) step(suspended bool) {
	for range 4 {
		for _, m := range c.all {
			m.x.Step(suspended)
		}
	}
}

// onGPU returns how many launches the GPU has.
func (c *manyContexts) onGPU() (n int) {
	for _, m := range c.all {
		for _, ch := range m.ctx.channels {
			n += int(ch.sent - ch.done)
		}
	}
	return n
}

// let has the GPU finish all that it has.
func (c *manyContexts) let() {
	for _, m := range c.all {
		for _, ch := range m.ctx.channels {
			ch.done = ch.sent
		}
	}
}

// TestOneKernelOfAGuest: a guest has one kernel on the GPU that is not known to be short, from
// whatever context and channel, so that one is left there when it is suspended. All of them have
// their turn.
func TestOneKernelOfAGuest(t *testing.T) {
	c := newManyContexts(t, 16, 2)
	for _, m := range c.all {
		f, err := m.x.functions.get(m.fn)
		if err != nil {
			t.Fatal(err)
		}
		f.hint = time.Second
	}
	c.launch(2)
	for n := range 16 * 2 * 2 {
		if c.step(false); c.onGPU() != 1 {
			t.Fatalf("%d kernels on the GPU after %d", c.onGPU(), n)
		}
		if c.step(true); c.onGPU() != 1 {
			t.Fatalf("%d kernels on the GPU when it is suspended", c.onGPU())
		}
		if c.let(); n%2 == 0 {
			if c.step(true); c.onGPU() != 0 {
				t.Fatalf("%d kernels on the GPU of a guest that is suspended", c.onGPU())
			}
		}
	}
	c.step(false)
	for i, m := range c.all {
		slot := c.page.Context(i)
		if n := slot.Counters().Kernels; n != 4 || m.x.admitted != 0 || m.x.admittedWork != 0 {
			t.Errorf("context %d: %d kernels, %d of %v counted on the GPU", i, n, m.x.admitted, m.x.admittedWork)
		}
		if a, w := slot.FetchAhead(), slot.Waiting(); a != (ipc.FetchAhead{}) || w != 0 {
			t.Errorf("context %d: in the end the page says %+v, waiting since %v", i, a, w)
		}
	}
}

// TestShortKernelsOfAGuest: kernels that are known to be short go from all contexts at once.
func TestShortKernelsOfAGuest(t *testing.T) {
	c := newManyContexts(t, 4, 1)
	for _, m := range c.all {
		f, err := m.x.functions.get(m.fn)
		if err != nil {
			t.Fatal(err)
		}
		f.ran(10 * time.Microsecond)
	}
	c.launch(8)
	if c.step(false); c.onGPU() != 32 {
		t.Errorf("%d kernels of 10 µs are on the GPU, want 32", c.onGPU())
	}
}

// TestLongAmongBrief: short launches of the same context, or of another, do not keep a long one
// away, however many there are.
func TestLongAmongBrief(t *testing.T) {
	for _, contexts := range []int{1, 2} {
		c := newManyContexts(t, contexts, 2)
		other := c.all[contexts-1]
		first := c.all[0]
		for _, m := range c.all {
			f, err := m.x.functions.get(m.fn)
			if err != nil {
				t.Fatal(err)
			}
			f.ran(10 * time.Microsecond)
		}
		send := func(m *member, g *guestEnd, fn uint64) {
			l, params := launchOf(fn, 32, 1)
			g.send(abi.Header{Op: abi.OpLaunch, Flags: abi.FlagQuiet}, l, params...)
		}
		long := first.ends[1].load("fake", "long")
		sent := 0
		for n := 0; first.ctx.channels[1].sent == 0; n++ {
			if n > 100 {
				t.Fatalf("%d contexts: a long launch never goes beside %d brief ones", contexts, sent)
			}
			for ; sent < n+8; sent++ {
				send(other, other.ends[0], other.fn)
			}
			if n == 3 {
				send(first, first.ends[1], long)
			}
			c.step(false)
			// Something always stays there, if that is possible.
			if ch := other.ctx.channels[0]; ch.done < ch.sent {
				ch.done++
			}
		}
		if other.ctx.channels[0].sent != other.ctx.channels[0].done {
			t.Errorf("%d contexts: it went beside others", contexts)
		}
	}
}

// TestPreemptibleKernelsOfAGuest: a channel may have two preemptible launches there, which leave
// when told.
func TestPreemptibleKernelsOfAGuest(t *testing.T) {
	c := newManyContexts(t, 3, 2)
	for _, m := range c.all {
		fn := m.ends[0].load("fake", "preemptible")
		for _, g := range m.ends {
			for range 3 {
				l := abi.Launch{Function: fn, Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
				g.send(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(make([]byte, 8), kernels[0].Attribute())...)
			}
		}
	}
	c.step(false)
	var there []int
	for i := range c.all {
		if n := c.page.Context(i).Outstanding(); n > 0 {
			there = append(there, int(n))
		}
	}
	if len(there) != 1 || there[0] > successorLaunches {
		t.Errorf("%v launches of contexts are on the GPU, want up to %d of one", there, successorLaunches)
	}
}

// TestIdleContextIsPassedOver: a context that may go first, and does nothing, holds the others back
// only for a moment.
func TestIdleContextIsPassedOver(t *testing.T) {
	c := newManyContexts(t, 3, 1)
	c.page.Context(2).SetWaiting(1)
	c.all = c.all[:2]
	c.launch(1)
	if c.step(false); c.onGPU() != 0 {
		t.Fatalf("%d kernels on the GPU, and another context's turn", c.onGPU())
	}
	if d := c.all[0].x.sleepFor(c.sim.Now()); d > turnTimeout {
		t.Errorf("sleeps for %v", d)
	}
	c.sim.Advance(turnTimeout)
	if c.step(false); c.onGPU() != 1 {
		t.Errorf("%d kernels on the GPU", c.onGPU())
	}
}

// TestOverstay: the launches of a suspended guest that were taken to be short have one time limit
// together. A context with a long launch is left alone.
func TestOverstay(t *testing.T) {
	for _, known := range []bool{true, false} {
		c := newManyContexts(t, 2, 1)
		if known {
			for _, m := range c.all {
				f, err := m.x.functions.get(m.fn)
				if err != nil {
					t.Fatal(err)
				}
				f.ran(10 * time.Microsecond)
			}
		}
		c.launch(1)
		c.step(false)
		c.step(true)
		const most = time.Second - time.Second/overstayMargin
		c.page.SetBill(ipc.Bill{Used: most})
		if c.step(true); c.all[0].x.poison != nil || c.all[1].x.poison != nil {
			t.Error("ended too early")
		}
		c.page.SetBill(ipc.Bill{Used: most + time.Millisecond})
		c.step(true)
		for i, m := range c.all {
			if ended := m.x.poison != nil; ended != known {
				t.Errorf("known to be brief %v: context %d ended %v (%v)", known, i, ended, m.x.poison)
			}
			if known && (!errors.Is(m.x.poison, gpu.ErrTimeLimit) || !strings.Contains(m.x.lastFault, "in kernel ")) {
				t.Errorf("ended with %q", m.x.lastFault)
			}
		}
	}
}
