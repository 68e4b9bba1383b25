package executor

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/internal/memfd"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestHostileControlBlocks: whatever a kernel writes to its control block, at most its own launch
// fails, and the next one works.
func TestHostileControlBlocks(t *testing.T) {
	for _, form := range []abi.Preempt{kernels[0].Preempt, kernels[1].Preempt, kernels[2].Preempt} {
		t.Run(form.Form.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fiddler := g.load(testdata(t, "unresponsive"), "fiddler")
			good := g.load(testdata(t, "early"), "count_coarse")
			c := g.counting(100)
			n := uint32(0)
			for _, w := range abi.ControlWords {
				for _, value := range []uint32{1, 21, math.MaxUint32} {
					l := abi.Launch{Function: fiddler, Grid: [3]uint32{20, 1, 1}, Block: [3]uint32{1, 1, 1}, ParamBytes: 12}
					params := binary.LittleEndian.AppendUint64(nil, uint64(value))
					params = binary.LittleEndian.AppendUint32(params, uint32(w.Offset))
					com := g.call(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, form.Attribute())...)
					if com.Status != abi.StatusOK && com.Status != abi.StatusPreemptState {
						t.Errorf("%s = %d: %v", w.Name, value, com.Status)
					}
					if n++; n%5 == 0 {
						c.preemptible(g, good, kernels[1], 1)
						if com := g.receive(1)[0]; com.Status != abi.StatusOK {
							t.Errorf("a good launch after %s = %d: %v", w.Name, value, com.Status)
						}
					}
				}
			}
			c.check()
			if len(r.faults) != 0 || len(r.launches()) != 0 {
				t.Errorf("faults %v, slots %+v", r.faults, r.launches())
			}
			if form.Form == abi.PreemptPersistent {
				// It ran to its end and claims that it finished nothing.
				l := abi.Launch{Function: fiddler, Grid: [3]uint32{20, 1, 1}, Block: [3]uint32{1, 1, 1}, ParamBytes: 12}
				params := binary.LittleEndian.AppendUint32(make([]byte, 8), abi.ControlInside)
				if com := g.call(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, form.Attribute())...); com.Status != abi.StatusPreemptState {
					t.Errorf("a kernel that leaves all undone unasked: %v", com.Status)
				}
			}
		})
	}
}

// TestExecutorsMemoryIsNotTheGuests: a guest can't free the memory of its preemptible launches.
func TestExecutorsMemoryIsNotTheGuests(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[0]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(8)
	c.preemptible(g, fn, k, 1)
	g.receive(1)
	own := uint64(r.x.channels[0].jobs[0].memory.base)
	if own == 0 {
		t.Fatal("no memory")
	}
	if com := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: own}); com.Status != abi.StatusInvalidAddress {
		t.Errorf("freed: %v", com.Status)
	}
	c.preemptible(g, fn, k, 1)
	g.receive(1)
	c.check()
}

// TestMemoryIsChargedToTheGuest: the memory of preemptible launches is taken from the guest's
// limit, kept from launch to launch, and freed with the channel. Only a launch for which there is
// none fails.
func TestMemoryIsChargedToTheGuest(t *testing.T) {
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, gpu.ContextOptions{Budget: page.Memory(0, 16<<20)})
	a, b := r.open(), r.open()
	k := kernels[1]
	fn := a.load(testdata(t, k.file), k.name)
	c := a.counting(4000)
	before := page.MemoryTaken()
	var after uint64
	for n := range 3 {
		c.preemptible(a, fn, k, 1)
		a.receive(1)
		if taken := page.MemoryTaken(); n == 0 {
			if after = taken; after <= before {
				t.Errorf("%d bytes taken, %d before", after, before)
			}
		} else if taken != after {
			t.Errorf("launch %d: %d bytes taken, %d after the first", n, taken, after)
		}
	}
	// A larger launch takes more in its place, and a smaller one none.
	for range 2 {
		c.preemptible(a, fn, kernel{"", "", abi.Preempt{Form: abi.PreemptCoarse, Group: 1, Every: 1}}, 1)
		a.receive(1)
		c.preemptible(a, fn, k, 1)
		a.receive(1)
	}
	if taken := page.MemoryTaken(); taken <= after || taken > after+64<<10 {
		t.Errorf("%d bytes taken, %d before", taken, after)
	}
	c.check()
	var rest []uint64
	for size := b.must(abi.OpMemInfo, abi.Empty{}).Value[0]; size >= 256; {
		if com := b.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: size}); com.Status == abi.StatusOK {
			rest = append(rest, com.Value[0])
		} else {
			size /= 2
		}
	}
	refused := *c
	refused.preemptible(b, fn, k, 1)
	if com := b.receive(1)[0]; com.Status != abi.StatusMemoryLimit {
		t.Errorf("without memory: %v", com.Status)
	}
	for _, p := range rest {
		b.must(abi.OpMemFree, abi.Handle{Handle: p})
	}
	r.x.Shut(0, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.stepUntil("the channel is let go", func() bool { return len(r.x.draining) == 0 && len(r.x.channels) == 1 })
	if taken := page.MemoryTaken(); taken != before {
		t.Errorf("%d bytes taken once the channel is closed, %d before its first launch", taken, before)
	}
}

// TestLaunchesOnAnOldPage: under a vm of the version before, whose page has no launch slots,
// launches don't wait, and preemptible ones run.
func TestLaunchesOnAnOldPage(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.x.o.Page = oldPage(t)
	g := r.open()
	for _, k := range kernels {
		fn := g.load(testdata(t, k.file), k.name)
		c := g.counting(40)
		c.preemptible(g, fn, k, 1)
		if com := g.receive(1)[0]; com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
		c.check()
	}
}

// oldPage returns a page of version 1.
func oldPage(t *testing.T) *ipc.ControlPage {
	t.Helper()
	fd, err := unix.MemfdCreate("old", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "old")
	if err := f.Truncate(3*64 + ipc.MaxContexts*256); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x76, 0x76, 0x70, 0x67, 1, 0, 0, 0}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	p, err := ipc.OpenControlPage(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
