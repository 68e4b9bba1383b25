package executor

import (
	"testing"

	"vgpud/clock"
	"vgpud/mediator/vgpu/abi"
)

// waits steps the executor, without time passing, and reports whether no command of g was answered.
func (g *guestEnd) waits() bool {
	g.r.t.Helper()
	for range 10 {
		g.r.x.Step(false)
	}
	n, err := g.com.Pending()
	if err != nil {
		g.r.t.Fatal(err)
	}
	return n == 0
}

// TestAllocationWaitsForFreedMemory: an allocation waits for memory that the guest has freed and
// that is still in use, unless that would not be enough.
func TestAllocationWaitsForFreedMemory(t *testing.T) {
	r, c, _ := newLazyRig(t)
	c.limit, c.owed = giga, giga
	g := r.open()
	g.alloc(giga)
	for range 10 {
		r.x.Step(false)
	}
	if n, err := g.com.Pending(); n != 0 || err != nil || c.tries != 1 {
		t.Errorf("answered while what was freed is in use: %d, %v; asked for %d times", n, err, c.tries)
	}
	c.owed = giga / 2
	r.x.Step(false)
	if n, err := g.com.Pending(); n != 0 || err != nil || c.tries != 2 {
		t.Errorf("answered while half of it is in use: %d, %v; asked for %d times", n, err, c.tries)
	}
	c.owed = 0
	if done := g.receive(1)[0]; done.Status != abi.StatusOK {
		t.Error(done.Status)
	}
	if done := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 2 * giga}); done.Status != abi.StatusMemoryLimit {
		t.Error("more than there is:", done.Status)
	}
}

// TestRoomIsFound: new room is found though as much freed memory as before is in use: at once if
// the executor itself freed memory, else soon.
func TestRoomIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		command func(mem, module uint64) (abi.Opcode, payload) // nil: time passes
	}{
		"freed":    {func(mem, _ uint64) (abi.Opcode, payload) { return abi.OpMemFree, abi.Handle{Handle: mem} }},
		"unloaded": {func(_, module uint64) (abi.Opcode, payload) { return abi.OpModuleUnload, abi.Handle{Handle: module} }},
		"later":    {},
	} {
		t.Run(name, func(t *testing.T) {
			r, lazy, let := newLazyRig(t)
			a, b := r.open(), r.open()
			mem := b.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 10}).Value[0]
			let(1)
			image := abi.Module{Image: abi.Window{Offset: staging, Size: 64}}
			module := b.must(abi.OpModuleLoad, image).Value[0]
			lazy.limit, lazy.owed, lazy.tries, lazy.loads = giga, giga, 0, 0
			a.alloc(giga)
			b.send(abi.Header{Op: abi.OpModuleLoad}, image)
			if !a.waits() || !b.waits() || lazy.tries != 1 || lazy.loads != 1 {
				t.Fatalf("asked for %d and %d times while nothing has changed", lazy.tries, lazy.loads)
			}
			sim := r.x.o.Clock.(*clock.Sim)
			if d := r.x.sleepFor(sim.Now()); d != retryAfter {
				t.Errorf("sleeps for %v", d)
			}
			lazy.limit = 2 * giga
			if c.command == nil {
				sim.Advance(retryAfter)
			} else {
				g := r.open()
				op, p := c.command(mem, module)
				g.must(op, p)
			}
			for _, g := range []*guestEnd{a, b} {
				if g.waits() {
					t.Fatal("it waits on")
				}
				if done := g.receive(1)[0]; done.Status != abi.StatusOK {
					t.Error(done.Status)
				}
			}
			if d := r.x.sleepFor(sim.Now()); d != sleepLimit {
				t.Errorf("in the end it sleeps for %v", d)
			}
		})
	}
}

// TestNeverEnough: an allocation of more than the context may have does not wait.
func TestNeverEnough(t *testing.T) {
	r, c, _ := newLazyRig(t)
	c.limit, c.owed = giga, giga
	if done := r.open().call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 2 * giga}); done.Status != abi.StatusMemoryLimit {
		t.Error(done.Status)
	}
}

// TestLaunchWaitsForFreedMemory: a preemptible launch waits for freed memory, too, and is counted
// once.
func TestLaunchWaitsForFreedMemory(t *testing.T) {
	r, c, let := newLazyRig(t)
	g := r.open()
	l := abi.Launch{Function: g.load("fake", "preemptible"), Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	urgent := abi.Attribute{ID: abi.AttributePriority}
	urgent.PutUint32(0, uint32(0xffff_fff0)) // -16
	data := attributed(make([]byte, 8), kernels[0].Attribute(), urgent)
	c.limit, c.owed = giga, giga
	g.send(abi.Header{Op: abi.OpLaunch, Aux: 2}, l, data...)
	if !g.waits() || c.tries != 1 {
		t.Fatalf("answered while what was freed is in use; asked for %d times", c.tries)
	}
	c.owed = 0
	for g.waits() {
		let(1)
	}
	if done := g.receive(1)[0]; done.Status != abi.StatusOK {
		t.Error(done.Status)
	}
	if n := r.page.Context(0).Counters().IgnoredPriorities; n != 1 {
		t.Errorf("%d priorities were ignored", n)
	}
	c.limit = 0
	g = r.open()
	g.send(abi.Header{Op: abi.OpLaunch, Aux: 2}, l, data...)
	if done := g.receive(1)[0]; done.Status != abi.StatusMemoryLimit {
		t.Errorf("where nothing was freed: %v", done.Status)
	}
}
