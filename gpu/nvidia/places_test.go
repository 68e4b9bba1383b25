package nvidia

import (
	"bytes"
	"errors"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// TestAllocAt checks that memory is at the address that was chosen, zeroed, charged in whole pieces,
// and that addresses which are taken, or not the context's to give, are refused.
func TestAllocAt(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 64 << 20})
	taken := func() uint64 {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		return c.memory.taken
	}
	base, size, grain, err := c.Places()
	if err != nil || size < 1<<34 || grain != 2<<20 || uint64(base)%grain != 0 {
		t.Fatalf("places of %d bytes at %#x in pieces of %d: %v", size, uint64(base), grain, err)
	}
	before := taken()
	p := base + gpu.Ptr(5*grain)
	if err := c.AllocAt(p, 3<<20); err != nil {
		t.Fatal(err)
	}
	if n := taken() - before; n != 2*grain {
		t.Errorf("3 MiB are charged as %d bytes, want %d", n, 2*grain)
	}
	ch1, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	ch := ch1.(*Channel)
	if b := read(t, ch, p, 3<<20); !bytes.Equal(b, make([]byte, 3<<20)) {
		t.Error("the memory is not zero")
	}
	if _, err := ch.CopyOut(make([]byte, 1), p+3<<20); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("a copy from behind the allocation: %v", err)
	}
	for name, a := range map[string]struct {
		p    gpu.Ptr
		n    uint64
		want error
	}{
		"the same":        {p, 1, gpu.ErrInvalidPtr},
		"its second half": {p + gpu.Ptr(grain), 1, gpu.ErrInvalidPtr},
		"across it":       {p - gpu.Ptr(grain), 4 * grain, gpu.ErrInvalidPtr},
		"odd":             {p + gpu.Ptr(4*grain) + 512, 1, gpu.ErrInvalidPtr},
		"before the base": {base - gpu.Ptr(grain), 1, gpu.ErrInvalidPtr},
		"behind the end":  {base + gpu.Ptr(size), 1, gpu.ErrInvalidPtr},
		"over the end":    {base + gpu.Ptr(size-grain), grain + 1, gpu.ErrInvalidPtr},
		"far away":        {^gpu.Ptr(grain - 1), 1, gpu.ErrInvalidPtr},
		"nothing":         {p + gpu.Ptr(4*grain), 0, gpu.ErrOutOfMemory},
		"too much":        {p + gpu.Ptr(4*grain), 64 << 20, gpu.ErrMemoryLimit},
		"very much":       {p + gpu.Ptr(4*grain), 1 << 63, gpu.ErrOutOfMemory},
	} {
		if err := c.AllocAt(a.p, a.n); !errors.Is(err, a.want) {
			t.Errorf("%s: %v, want %v", name, err, a.want)
		}
	}
	for _, method := range []string{"MemCreate", "MemMap", "MemSetAccess", "MemsetAsync"} {
		before := taken()
		x.gpu.Fail(method, cuda.ErrOutOfMemory)
		if err := c.AllocAt(p+gpu.Ptr(4*grain), 1); err == nil {
			t.Errorf("allocated though %s fails", method)
		}
		x.gpu.Fail(method, 0)
		if after := taken(); after != before {
			t.Errorf("%s fails: %d bytes stay charged", method, after-before)
		}
	}
	if err := c.AllocAt(p+gpu.Ptr(4*grain), 1); err != nil {
		t.Errorf("after failures: %v", err)
	}
	if err := c.Free(p + gpu.Ptr(grain)); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free in the middle: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if ranges, used := x.gpu.Reserved(); ranges != 0 || used != 0 {
		t.Errorf("%d ranges and %d bytes are left", ranges, used)
	}
}

// TestPlacedMemoryOutlivesItsUse checks that freed memory is unmapped, its charge given back and its
// address free only when the commands before have ended.
func TestPlacedMemoryOutlivesItsUse(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 64 << 20})
	base, _, grain, err := c.Places()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AllocAt(base, 8); err != nil {
		t.Fatal(err)
	}
	ch1, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	ch := ch1.(*Channel)
	if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
		t.Fatal(err)
	}
	fence, err := ch.Launch(kernel(t, c, "add", uint64(base))) // faults if it is unmapped
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Free(base); err != nil {
		t.Fatal(err)
	}
	if n := c.Freed(); n != grain {
		t.Errorf("%d freed bytes are still in use, want %d", n, grain)
	}
	if err := c.AllocAt(base, 8); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("allocated under a kernel: %v", err)
	}
	x.unblock()
	if o := ran(t, ch, fence, nil); o.Err != nil {
		t.Fatal(o.Err)
	}
	for c.Freed() != 0 {
	}
	if err := c.AllocAt(base, 8); err != nil {
		t.Errorf("the address is not free again: %v", err)
	}
	if b := read(t, ch, base, 8); !bytes.Equal(b, make([]byte, 8)) {
		t.Errorf("what the last owner left: %x", b)
	}
}
