package nvidia

import (
	"errors"
	"testing"

	"vgpud/gpu"
)

// TestLimits checks that memory which a limit takes is charged, as far as the driver takes it, and
// that what is refused changes nothing.
func TestLimits(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 64 << 20})
	taken := func() uint64 {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		return c.memory.taken
	}
	base := taken()
	for _, s := range []struct {
		limit      gpu.Limit
		set        uint64
		err        error
		want, more uint64
	}{
		{gpu.LimitPrintf, 4<<20 + 1, nil, 4<<20 + 512, 3<<20 + 512}, // this driver rounds up
		{gpu.LimitPrintf, 1 << 20, nil, 1 << 20, 0},
		{gpu.LimitHeap, 8 << 20, nil, 8 << 20, 7 << 20},
		{gpu.LimitHeap, 1 << 30, gpu.ErrMemoryLimit, 8 << 20, 7 << 20},
		{gpu.LimitHeap, 1 << 20, nil, 1 << 20, 0},
		{gpu.LimitStack, 1 << 40, gpu.ErrInvalidLimit, 1 << 10, 0},
		{gpu.LimitStack, 1 << 10, nil, 1 << 10, 0},
		{gpu.LimitPersistingL2 + 1, 1, gpu.ErrUnsupported, 0, 0},
	} {
		if err := c.SetLimit(s.limit, s.set); !errors.Is(err, s.err) || s.err == nil && err != nil {
			t.Errorf("limit %d := %d: %v, want %v", s.limit, s.set, err, s.err)
		}
		if v, err := c.Limit(s.limit); err == nil && v != s.want {
			t.Errorf("limit %d is %d after %d, want %d", s.limit, v, s.set, s.want)
		}
		if more := taken() - base; more != s.more {
			t.Errorf("limit %d := %d charges %d bytes, want %d", s.limit, s.set, more, s.more)
		}
	}
	threads := uint64(x.info.Properties.SMs) * uint64(x.info.Properties.ThreadsPerSM)
	if err := c.SetLimit(gpu.LimitStack, 2048); err != nil {
		t.Fatal(err)
	}
	if more := taken() - base; more != 2048*threads {
		t.Errorf("a stack of 2048 bytes charges %d bytes for %d threads", more, threads)
	}
}
