package soft

import (
	"testing"
	"time"

	"vgpud/gpu"
)

// Calls that take long run in order, one between two chunks, so that launches proceed meanwhile.
func TestCallsGiveWay(t *testing.T) {
	e := &Engine{epoch: time.Now()}
	var ran []int
	const n = 5
	for i := range n {
		e.calls = append(e.calls, &call{done: make(chan struct{}), fn: func() {
			ran = append(ran, i)
			for until := e.now() + chunk; e.now() < until; {
			}
		}})
		e.pending.Add(1)
	}
	for i := range n {
		e.runCalls()
		if len(ran) != i+1 || ran[i] != i {
			t.Fatalf("calls %v ran after %d rounds", ran, i+1)
		}
		if left := e.pending.Load(); left != int32(n-1-i) {
			t.Errorf("%d calls wait after %d rounds", left, i+1)
		}
	}
	e.runCalls()
	if len(ran) != n {
		t.Errorf("calls %v ran", ran)
	}
}

// The pacing thread does not free a context's memory, and the memory is not available before it is
// freed.
func TestMemoryOutlivesTheEnd(t *testing.T) {
	e := startEngine(t, Options{})
	c, info, err := e.newContext("", gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Memory.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Alloc(1 << 20); err != nil {
		t.Fatal(err)
	}
	var ended bool
	if err := e.do(func() {
		c.end()
		c.data[0] = 1 // still mapped
		ended = c.over.Load()
	}); err != nil {
		t.Fatal(err)
	}
	if n := e.used.taken(); !ended || n < 1<<20 {
		t.Errorf("context ended: %v, with %d bytes in use", ended, n)
	}
	for range 2 {
		c.free()
		if n := e.used.taken(); n != 0 {
			t.Errorf("%d bytes in use after the memory was given back", n)
		}
	}
}
