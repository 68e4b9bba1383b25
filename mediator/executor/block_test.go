package executor

import (
	"context"
	"encoding/binary"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// windowedContext is a context with a window, in which a store is done when the GPU has carried out
// a copy. Zeroes are posted, as far as that can be told: they come to the GPU with the next load or
// store of something else, and launches overtake them. Only the evict word's come at once.
type windowedContext struct {
	gpu.Context
	t       testing.TB
	channel gpu.Channel
	base    gpu.Ptr
	blocks  int
	stores  int
	loads   int
	posted  []uint64
}

func (c *windowedContext) Window() (gpu.Ptr, uint64, gpu.Window) {
	return c.base, uint64(c.blocks) * abi.ControlBytes, c
}

func (c *windowedContext) Store32(off uint64, v uint32) {
	c.stores++
	if v == 0 && off%abi.ControlBytes != abi.ControlEvict {
		c.posted = append(c.posted, off)
		return
	}
	c.push()
	c.store(off, v)
}

// push has the posted stores come to the GPU.
func (c *windowedContext) push() {
	for _, off := range c.posted {
		c.store(off, 0)
	}
	c.posted = c.posted[:0]
}

func (c *windowedContext) store(off uint64, v uint32) {
	f, err := c.channel.CopyIn(c.base+gpu.Ptr(off), binary.LittleEndian.AppendUint32(nil, v))
	if err == nil {
		err = c.channel.Wait(context.Background(), f)
	}
	if err != nil {
		c.t.Error(err)
	}
}

func (c *windowedContext) Load32(off uint64) uint32 {
	c.loads++
	c.push()
	return c.load(off)
}

func (c *windowedContext) load(off uint64) uint32 {
	var b [4]byte
	f, err := c.channel.CopyOut(b[:], c.base+gpu.Ptr(off))
	if err == nil {
		err = c.channel.Wait(context.Background(), f)
	}
	if err != nil {
		c.t.Error(err)
	}
	return binary.LittleEndian.Uint32(b[:])
}

// newWindowedRig is newRig with a window for so many control blocks.
func newWindowedRig(t testing.TB, blocks int) (*rig, *windowedContext) {
	return newWindowedRigOn(t, testGPU, blocks)
}

// newWindowedRigOn is newRigOn with a window for so many control blocks.
func newWindowedRigOn(t testing.TB, so soft.Options, blocks int) (*rig, *windowedContext) {
	var w *windowedContext
	r := newRigIn(t, so, gpu.ContextOptions{}, func(c gpu.Context) gpu.Context {
		w = &windowedContext{Context: c, t: t, blocks: blocks}
		var err error
		if w.base, err = c.Alloc(max(uint64(blocks), 1) * abi.ControlBytes); err != nil {
			t.Fatal(err)
		}
		if w.channel, err = c.NewChannel(); err != nil {
			t.Fatal(err)
		}
		return w
	})
	return r, w
}

// bothWays runs a test with control blocks that are reached by copies, and with ones in a window.
func bothWays(t *testing.T, so soft.Options, test func(t *testing.T, newRig func(testing.TB) *rig)) {
	t.Run("copies", func(t *testing.T) {
		test(t, func(t testing.TB) *rig { return newRigOn(t, so, gpu.ContextOptions{}) })
	})
	t.Run("window", func(t *testing.T) {
		test(t, func(t testing.TB) *rig {
			r, w := newWindowedRigOn(t, so, 64)
			t.Cleanup(func() {
				if w.stores == 0 {
					t.Error("nothing was stored to the window")
				}
			})
			return r
		})
	})
}

// TestBlocks: control blocks are zero when they are released with their channel. If none is left,
// launches have theirs in their own memory.
func TestBlocks(t *testing.T) {
	r, w := newWindowedRig(t, 2)
	var guests []*guestEnd
	for range 3 {
		guests = append(guests, r.open())
	}
	k := kernels[2]
	fn := guests[0].load(testdata(t, k.file), k.name)
	c := guests[0].counting(64)
	for _, g := range guests {
		for range 2 {
			c.preemptible(g, fn, k, 3)
			if com := g.receive(1)[0]; com.Status != abi.StatusOK {
				t.Fatalf("completion %+v", com)
			}
		}
	}
	c.check()
	if b := &r.x.controlBlocks; len(b.free)+len(b.zeroed) != 0 || b.next != 2*abi.ControlBytes {
		t.Errorf("blocks %+v", b)
	}
	if in := r.x.channels[2].jobs[0].memory.block; in.window != nil {
		t.Error("the third launch has a block of two")
	}
	for i := range 2 {
		r.x.Shut(i, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	r.stepUntil("the channels are let go", func() bool { return len(r.x.draining) == 0 && len(r.x.controlBlocks.zeroed) == 2 })
	w.push()
	for off := uint64(0); off < 2*abi.ControlBytes; off += 4 {
		if v := w.load(off); v != 0 {
			t.Errorf("%d at %#x", v, off)
		}
	}
}

// TestBlockOfALaunchWithoutReadback: what a launch of a closed channel wrote to its block does not
// affect the next launch.
func TestBlockOfALaunchWithoutReadback(t *testing.T) {
	r, w := newWindowedRig(t, 1)
	closed, open := r.open(), r.open()
	k := kernels[2]
	fn := closed.load(testdata(t, k.file), k.name)
	closed.counting(800).preemptible(closed, fn, k, 30)
	r.stepUntil("it runs", func() bool { return r.newest().State == slotstate.Running })
	r.x.Shut(0, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.stepUntil("the channel is let go", func() bool { return len(r.x.draining) == 0 && len(r.x.controlBlocks.zeroed) == 1 })
	w.push()
	for off := uint64(0); off < abi.ControlBytes; off += 4 {
		if v := w.load(off); v != 0 {
			t.Errorf("%d at %#x", v, off)
		}
	}
	c := open.counting(800)
	fn = open.load(testdata(t, k.file), k.name)
	c.preemptible(open, fn, k, 3)
	if com := open.receive(1)[0]; com.Status != abi.StatusOK {
		t.Errorf("completion %+v", com)
	}
	c.check()
}
