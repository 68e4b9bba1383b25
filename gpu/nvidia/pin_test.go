package nvidia

import (
	"runtime"
	"testing"

	"vgpud/gpu"
)

// TestPinnedGoroutine: the driver is not told for each command of which context it is, and a copy's
// end is found from any goroutine.
func TestPinnedGoroutine(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	l := kernel(t, c, "add", uint64(p))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.Pin(); err != nil {
		t.Fatal(err)
	}
	before := x.gpu.Calls("CtxSetCurrent")
	var last gpu.Fence
	for range 3 {
		var err error
		if last, err = ch.Launch(l); err != nil {
			t.Fatal(err)
		}
	}
	if n := x.gpu.Calls("CtxSetCurrent") - before; n != 0 {
		t.Errorf("the context is made current %d times for three launches", n)
	}
	ran(t, ch, last, nil)
	f, err := ch.CopyIn(p, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- ch.Wait(t.Context(), f) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
