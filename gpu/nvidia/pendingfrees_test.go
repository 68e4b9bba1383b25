package nvidia

import (
	"errors"
	"runtime"
	"testing"

	"vgpud/gpu"
)

var _ gpu.Lazy = (*Context)(nil)

// Freed memory counts as used while queued commands may use it, because the GPU has no more room
// until then, and no longer, whichever call notices.
func TestFreedMemoryIsOwed(t *testing.T) {
	for busy := range 3 {
		x := newFake(t, Options{})
		b := &budget{limit: 64 << 20}
		c := x.context(t, gpu.ContextOptions{Budget: b})
		p := alloc(t, c, 32<<20)
		read(t, channelOf(t, c), p, 8)
		var fences []gpu.Fence
		var channels []*Channel
		for range busy {
			ch := channelOf(t, c)
			f, err := ch.Launch(kernel(t, c, "hang", 0))
			if err != nil {
				t.Fatal(err)
			}
			channels, fences = append(channels, ch), append(fences, f)
		}
		before := b.taken()
		if err := c.Free(p); err != nil {
			t.Fatal(err)
		}
		if want := min(busy, 1) * 32 << 20; c.Freed() != uint64(want) || b.taken() != before-32<<20+uint64(want) {
			t.Errorf("%d kernels may use it: %d bytes are pending, and %d of %d taken", busy, c.Freed(), b.taken(), before)
		}
		if _, err := c.Alloc(48 << 20); busy > 0 != errors.Is(err, gpu.ErrMemoryLimit) {
			t.Errorf("%d kernels: allocated more than there is: %v", busy, err)
		} else if err == nil {
			continue
		}
		x.unblock()
		for i, ch := range channels {
			for ch.Done() < fences[i] {
				runtime.Gosched()
			}
		}
		if c.Freed() != 0 || b.taken() != before-32<<20 {
			t.Errorf("%d kernels have ended, and %d of %d bytes are taken", busy, b.taken(), before)
		}
		alloc(t, c, 48<<20)
	}
}

// Freed memory is pending until its charge is released: whoever finds none pending has the room.
func TestPendingUntilReleased(t *testing.T) {
	var o pendingFrees
	o.add(pendingFree{charge: 3})
	o.add(pendingFree{charge: 4})
	var released uint64
	if n := o.settle(func(n uint64) {
		if b := o.bytes.Load(); b != n {
			t.Errorf("%d bytes are pending while %d are released", b, n)
		}
		released += n
	}); n != 7 || released != 7 || o.bytes.Load() != 0 {
		t.Errorf("settled %d bytes, released %d, and %d are pending", n, released, o.bytes.Load())
	}
	if n := o.settle(func(n uint64) { t.Errorf("%d bytes are released, of none", n) }); n != 0 {
		t.Errorf("settled %d bytes, of none", n)
	}
}

// The end of a zeroing is signalled like that of a command, with its times.
func TestZeroingIsTold(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch, before := c.Zeroes()
	for range 3 * gpu.OutcomesKept {
		alloc(t, c, 1<<10)
	}
	_, f := c.Zeroes()
	if f != before+3*gpu.OutcomesKept {
		t.Errorf("%d zeroings, want one for each allocation", f-before)
	}
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if o := ch.Outcome(f); o.Err != nil || o.End == 0 || o.End < o.Start {
		t.Errorf("zeroed from %v to %v, %v", o.Start, o.End, o.Err)
	}
	c.poison(gpu.ErrTimeLimit)
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Error(err)
	}
}
