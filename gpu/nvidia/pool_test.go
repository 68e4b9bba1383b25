package nvidia

import (
	"errors"
	"runtime"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// Freed memory returns to the GPU without any synchronising caller: large amounts at once, and
// small ones after a while.
func TestFreedMemoryLeavesThePool(t *testing.T) {
	for _, size := range []uint64{trimThreshold, 1 << 10} {
		x := newFake(t, Options{})
		c := x.context(t, gpu.ContextOptions{})
		free := func() (n uint64) {
			if err := c.do("ask", func() (err error) { n, _, err = c.drv.MemGetInfo(); return err }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := free()
		if err := c.Free(alloc(t, c, size)); err != nil {
			t.Fatal(err)
		}
		for c.Freed() > 0 || free() != before {
			runtime.Gosched()
		}
	}
}

// Allocations go on even if the driver refuses changes to its pool.
func TestNoPool(t *testing.T) {
	for _, method := range []string{"DeviceGetDefaultMemPool", "MemPoolSetAttribute", "MemPoolTrimTo"} {
		x := newFake(t, Options{})
		x.gpu.Fail(method, cuda.ErrNotSupported)
		c := x.context(t, gpu.ContextOptions{MemoryLimit: trimThreshold + 8<<20})
		for _, size := range []uint64{trimThreshold, 1 << 10} {
			if err := c.Free(alloc(t, c, size)); err != nil {
				t.Fatal(err)
			}
			for c.Freed() > 0 {
				runtime.Gosched()
			}
		}
	}
}

// Memory that the driver fails to free still exists, and can be freed.
func TestFreeThatFails(t *testing.T) {
	x := newFake(t, Options{})
	b := &budget{limit: 64 << 20}
	c := x.context(t, gpu.ContextOptions{Budget: b})
	p := alloc(t, c, 32<<20)
	read(t, channelOf(t, c), p, 8)
	for range 2 { // waiting for both takes another stream
		if _, err := channelOf(t, c).Launch(kernel(t, c, "hang", 0)); err != nil {
			t.Fatal(err)
		}
	}
	before := b.taken()
	x.gpu.Fail("StreamCreate", cuda.ErrOutOfMemory)
	if err := c.Free(p); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("freed: %v", err)
	}
	x.gpu.Fail("StreamCreate", 0)
	if err := c.Free(p); err != nil {
		t.Errorf("freed again: %v", err)
	}
	x.unblock()
	for c.Freed() > 0 {
		runtime.Gosched()
	}
	if b.taken() != before-32<<20 {
		t.Errorf("%d bytes are taken, want %d less", b.taken(), before-32<<20)
	}
}
