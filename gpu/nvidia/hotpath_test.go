package nvidia

import (
	"runtime"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
)

// instant is a driver whose commands are done when they are queued and whose calls cost nothing, so
// that only this package's cost remains.
type instant struct{ *cudatest.GPU }

func (instant) CtxSetCurrent(cuda.Context) error                          { return nil }
func (instant) EventRecord(cuda.Event, cuda.Stream) error                 { return nil }
func (instant) EventQuery(cuda.Event) (bool, error)                       { return true, nil }
func (instant) EventElapsedTime(_, _ cuda.Event) (float32, error)         { return 0, nil }
func (instant) MemcpyHtoDAsync(cuda.DevicePtr, []byte, cuda.Stream) error { return nil }
func (instant) MemcpyDtoHAsync([]byte, cuda.DevicePtr, cuda.Stream) error { return nil }

func (instant) LaunchKernel(cuda.Function, [3]uint32, [3]uint32, uint32, cuda.Stream, *cuda.Args, int) error {
	return nil
}

func (d instant) StreamWriteValue64(_ cuda.Stream, at cuda.DevicePtr, value uint64) error {
	return d.Store(at, value)
}

// hotPath returns the calls that must not allocate, on a channel of such a driver.
func hotPath(t testing.TB) map[string]func() {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 4096)
	l := kernel(t, c, "add", uint64(p))
	read(t, ch, p, 8) // objects that are created on first use exist now
	for range slotCount {
		f, err := ch.Launch(l)
		ran(t, ch, f, err)
	}
	drv := c.drv
	c.drv = instant{x.gpu}
	t.Cleanup(func() { c.drv = drv })
	done := func(f gpu.Fence, err error) gpu.Fence {
		if err != nil {
			t.Fatal(err)
		}
		for ch.Done() < f {
			runtime.Gosched()
		}
		return f
	}
	word, window := make([]byte, 4), make([]byte, 256)
	return map[string]func(){
		"launch": func() { done(ch.Launch(l)) },
		// A train of launches, whose outcomes are read when it has ended.
		"train": func() {
			const n = 16
			var last gpu.Fence
			for i := range n {
				ch.Ahead(i < n-1)
				var err error
				if last, err = ch.Launch(l); err != nil {
					t.Fatal(err)
				}
			}
			done(last, nil)
			for f := last - n + 1; f <= last; f++ {
				if o := ch.Outcome(f); o.Err != nil {
					t.Fatal(o.Err)
				}
			}
		},
		"word":     func() { done(ch.CopyIn(p, word)) },
		"copy in":  func() { done(ch.CopyIn(p, window)) },
		"copy out": func() { done(ch.CopyOut(window, p)) },
		"outcome": func() {
			if o := ch.Outcome(done(ch.Launch(l))); o.Err != nil {
				t.Fatal(o.Err)
			}
		},
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	// On another thread the context would not be current, of which an event that is used for the first
	// time takes notice: the driver above does not set it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, f := range hotPath(t) {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkHotPath(b *testing.B) {
	for _, name := range []string{"launch", "train", "word", "copy in", "copy out", "outcome"} {
		b.Run(name, func(b *testing.B) { // on another thread than its caller
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f := hotPath(b)[name]
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
