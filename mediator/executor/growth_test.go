package executor

import (
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// growingRig is a rig whose context was granted memory and asks for more.
type growingRig struct {
	*rig
	memory *ipc.Memory
	asked  []uint64
}

func newGrowingRig(t *testing.T, grant uint64) *growingRig {
	t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &growingRig{memory: page.Memory(0, 32<<20).Granted(grant)}
	r.rig = newRig(t, gpu.ContextOptions{Budget: r.memory})
	r.end()
	dev, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	r.options.Device, r.options.Page = dev, page
	if r.options.Context, err = dev.NewContext(t.Context(), gpu.ContextOptions{Budget: r.memory}); err != nil {
		t.Fatal(err)
	}
	r.options.Moves, r.options.Granted, r.options.MemoryLimit = true, r.memory.SetGrant, 32<<20
	r.options.Grow = func(n uint64) { r.asked = append(r.asked, n) }
	r.start()
	return r
}

// wait steps the executor until it has asked for more memory n times.
func (r *growingRig) wait(n int) uint64 {
	r.t.Helper()
	r.stepUntil("it asks for memory", func() bool { return len(r.asked) == n })
	return r.asked[n-1]
}

// A command for which the grant has too little waits for more, once; other channels go on meanwhile;
// and it fails only if there is none.
func TestCommandWaitsForLargerGrant(t *testing.T) {
	r := newGrowingRig(t, 4<<20)
	g, other := r.open(), r.open()
	g.must(abi.OpMemAlloc, abi.Alloc{Size: 2 << 20})
	taken := r.options.Page.Context(0).MemoryTaken()
	g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8 << 20})
	if want := r.wait(1); want != taken+8<<20 {
		t.Errorf("it asks for %d bytes, with %d and 8 MiB more", want, taken)
	}
	for range 10 {
		other.must(abi.OpFence, abi.Empty{})
	}
	if n, err := g.com.Pending(); n != 0 || err != nil || len(r.asked) != 1 {
		t.Fatalf("%d answers, %v; it asked %d times", n, err, len(r.asked))
	}
	r.x.Granted(ipc.Grant{Bytes: 20 << 20, Want: 1}) // to another request
	r.x.Granted(ipc.Grant{Bytes: r.asked[0], Want: r.asked[0]})
	if c := g.receive(1)[0]; c.Status != abi.StatusOK {
		t.Fatalf("with the memory granted: %v", c.Status)
	}
	// An allocation that is refused fails, and the next request is made again.
	for i := range 2 {
		g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8 << 20})
		want := r.wait(2 + i)
		r.x.Granted(ipc.Grant{Bytes: r.asked[0], Want: want})
		if c := g.receive(1)[0]; c.Status != abi.StatusMemoryLimit {
			t.Errorf("refused: %v", c.Status)
		}
	}
	if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 1 << 63}); c.Status == abi.StatusOK || len(r.asked) != 3 {
		t.Errorf("2^63 bytes: %v; it asked %d times", c.Status, len(r.asked))
	}
}

// A context that waits for memory may leave, and the command is carried out where it goes on.
func TestWaitingContextLeaves(t *testing.T) {
	r := newGrowingRig(t, 4<<20)
	g := r.open()
	g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8 << 20})
	r.wait(1)
	r.move()
	if !r.wants {
		t.Error("it has nothing to do")
	}
	if c := g.receive(1)[0]; c.Status != abi.StatusOK {
		t.Errorf("with the memory of the other GPU: %v", c.Status)
	}
}

// Where it is not the grant that has too little, no larger one is asked for: the guest's other contexts
// have the rest of its limit, or that was lowered. The command fails, and does not ask for ever.
func TestGuestsLimitIsNoGrowth(t *testing.T) {
	for name, lower := range map[string]func(p *ipc.ControlPage){
		"a limit that was lowered": func(p *ipc.ControlPage) { p.SetTerms(ipc.Terms{Weight: 1, MemoryLimitBytes: 6 << 20}) },
		"another context": func(p *ipc.ControlPage) {
			if !p.Memory(1, 32<<20).Take(28 << 20) {
				t.Fatal("no memory for another context")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGrowingRig(t, 20<<20)
			lower(r.options.Page)
			r.x.o.Grow = func(n uint64) {
				r.asked = append(r.asked, n)
				if len(r.asked) > 10 {
					t.Fatalf("it asks for ever: %d", r.asked)
				}
				r.x.Granted(ipc.Grant{Bytes: 20 << 20, Want: n})
			}
			g := r.open()
			if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8 << 20}); c.Status != abi.StatusMemoryLimit {
				t.Errorf("%v", c.Status)
			}
			if len(r.asked) > 0 {
				t.Errorf("it asked for %d", r.asked)
			}
		})
	}
}

// A device may need more than what was asked for: then more than the grant is asked for, until that is
// refused.
func TestGrowthGoesOn(t *testing.T) {
	r := newGrowingRig(t, 4<<20)
	most := uint64(4 << 20)
	r.x.o.Grow = func(n uint64) {
		r.asked = append(r.asked, n)
		if len(r.asked) > 10 {
			t.Fatalf("it asks for ever: %d", r.asked)
		}
		most = min(max(most, n), 16<<20)
		r.x.Granted(ipc.Grant{Bytes: most, Want: n})
	}
	r.x.o.Granted = func(uint64) {} // as if the device needed more than any grant
	g := r.open()
	if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 6 << 20}); c.Status != abi.StatusMemoryLimit {
		t.Errorf("%v", c.Status)
	}
	if len(r.asked) < 2 {
		t.Errorf("it asked for %d", r.asked)
	}
}
