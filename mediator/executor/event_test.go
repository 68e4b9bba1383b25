package executor

import (
	"encoding/binary"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// word returns a word of shared memory.
func (r *rig) word(offset int) uint32 { return binary.LittleEndian.Uint32(r.shared[offset:]) }

// TestTriggeredEvents checks that commands behind an await run when the guest has triggered the event
// with the value, not before, and that meanwhile the channel counts as idle and others go on.
func TestTriggeredEvents(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b, c := r.open(), r.open(), r.open()
	ev := a.call(abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}, abi.Empty{}).Value[0]
	p := a.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	inc := a.load(incPTX, "inc")
	l, params := launchOf(inc, 32, p)
	launch := func(g *guestEnd) {
		g.send(abi.Header{Op: abi.OpLaunch, More: uint8(abi.MoreFor(len(params)))}, l, params...)
	}
	counted := func() uint32 {
		b.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: p, Size: 128})
		return r.word(staging)
	}
	// a runs once, then waits for 1, runs, waits for 3, runs; c waits for what a records at its end.
	done := b.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	launch(a)
	a.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	launch(a)
	a.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 3})
	launch(a)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: done})
	a.receive(1)
	launch(b)
	b.receive(1)
	idle := func() {
		t.Helper()
		for range 100 {
			r.x.Step(false)
		}
		if r.x.slot.Backlog() || r.x.slot.Outstanding() != 0 || r.x.slot.OnGPU() {
			t.Errorf("a guest that only waits for itself has backlog %v and %d launches", r.x.slot.Backlog(), r.x.slot.Outstanding())
		}
	}
	if n := counted(); n != 2 {
		t.Errorf("%d launches have run, want 2", n)
	}
	idle()
	if c := b.must(abi.OpEventQuery, abi.Handle{Handle: ev}); c.Value[0] != abi.EventUnrecorded {
		t.Errorf("before it was triggered: %v", c.Value)
	}
	at := b.must(abi.OpEventTrigger, abi.Point{Handle: ev, Value: 2}).Value[0]
	a.receive(2)
	if n := counted(); n != 3 {
		t.Errorf("%d launches have run after 2 was triggered, want 3", n)
	}
	b.must(abi.OpEventTrigger, abi.Point{Handle: ev, Value: 1}) // it does not fall
	idle()
	if c := b.must(abi.OpEventQuery, abi.Handle{Handle: ev}); c.Value[0] != abi.EventReached || c.Value[1] < at {
		t.Errorf("after it was triggered at %d: %v", at, c.Value)
	}
	b.must(abi.OpEventAwait, abi.Point{Handle: ev, Value: 2}) // it holds still
	b.must(abi.OpEventTrigger, abi.Point{Handle: ev, Value: ^uint64(0)})
	a.receive(3)
	if n := counted(); n != 4 {
		t.Errorf("%d launches have run in the end, want 4", n)
	}
	c.must(abi.OpEventWait, abi.Handle{Handle: done})
}

// TestTriggerIsInOrder checks that a trigger comes after the commands before it in its channel.
func TestTriggerIsInOrder(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	ev := a.call(abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}, abi.Empty{}).Value[0]
	l, params := launchOf(a.load(spinPTX, "spin"), 1, 100_000)
	b.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	b.send(abi.Header{Op: abi.OpTimestamp}, abi.Empty{})
	a.send(abi.Header{Op: abi.OpLaunch, More: uint8(abi.MoreFor(len(params)))}, l, params...)
	a.send(abi.Header{Op: abi.OpEventTrigger}, abi.Point{Handle: ev, Value: 1})
	ends := a.receive(2)[0].End
	if after := b.receive(2)[1].Value[0]; after < ends {
		t.Errorf("awaited at %d, before the kernel's end at %d", after, ends)
	}
}

// TestWaitsEnd checks that a wait for a trigger that never comes ends with its event, its channel or a
// fault, and that a wait for a channel that waits is idle too.
func TestWaitsEnd(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b, c := r.open(), r.open(), r.open()
	create := func(aux uint16) uint64 {
		return c.call(abi.Header{Op: abi.OpEventCreate, Aux: aux}, abi.Empty{}).Value[0]
	}
	ev, recorded := create(abi.EventTriggered), create(0)
	a.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: recorded})
	for range 10 {
		r.x.Step(false)
	}
	b.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	for range 10 {
		r.x.Step(false)
	}
	if r.x.slot.Backlog() {
		t.Error("a channel that waits for another that waits has backlog")
	}
	c.must(abi.OpEventDestroy, abi.Handle{Handle: ev})
	if got := []abi.Status{a.receive(2)[0].Status, b.receive(1)[0].Status}; got[0] != abi.StatusInvalidHandle || got[1] != abi.StatusInvalidHandle {
		t.Errorf("the event is gone: %v", got)
	}

	ev = create(abi.EventTriggered)
	a.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	for range 10 {
		r.x.Step(false)
	}
	closed := false
	r.x.Shut(0, func(error) { closed = true })
	r.stepUntil("the channel is closed", func() bool { return closed && len(r.x.draining) == 0 })

	b.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 1})
	l, params := launchOf(c.load(incPTX, "inc"), 1, 8) // no memory there
	if s := c.call(abi.Header{Op: abi.OpLaunch}, l, params...).Status; s != abi.StatusIllegalAddress {
		t.Fatal(s)
	}
	if s := b.receive(1)[0].Status; s != abi.StatusIllegalAddress {
		t.Errorf("in a poisoned context: %v", s)
	}
}

// TestEventKinds checks that neither kind of event is taken for the other.
func TestEventKinds(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	triggered := g.call(abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}, abi.Empty{}).Value[0]
	recorded := g.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	for name, x := range map[string]struct {
		op abi.Opcode
		p  payload
	}{
		"record":              {abi.OpEventRecord, abi.Handle{Handle: triggered}},
		"wait":                {abi.OpEventWait, abi.Handle{Handle: triggered}},
		"elapsed":             {abi.OpEventElapsed, abi.Elapsed{Start: triggered, End: recorded}},
		"trigger":             {abi.OpEventTrigger, abi.Point{Handle: recorded, Value: 1}},
		"await":               {abi.OpEventAwait, abi.Point{Handle: recorded, Value: 1}},
		"trigger none":        {abi.OpEventTrigger, abi.Point{Handle: 77, Value: 1}},
		"await none":          {abi.OpEventAwait, abi.Point{Handle: 77, Value: 1}},
		"await without limit": {abi.OpEventAwait, abi.Point{Handle: ^uint64(0), Value: ^uint64(0)}},
	} {
		if s := g.call(abi.Header{Op: x.op}, x.p).Status; s != abi.StatusInvalidHandle {
			t.Errorf("%s: %v", name, s)
		}
	}
	if s := g.call(abi.Header{Op: abi.OpEventCreate, Aux: 4}, abi.Empty{}).Status; s != abi.StatusInvalidValue {
		t.Errorf("of an unknown kind: %v", s)
	}
}
