package system

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// TestWeights shares the GPU between a guest with long kernels and one with kernels a tenth as long
// and four times the weight. Without a policy the first gets more of the GPU, since kernels take
// turns; by weight the second does.
func TestWeights(t *testing.T) {
	h := host.Start(t, "none")
	// A block of a simple loop: 1.6 µs an iteration.
	const iterations = 150
	busy(t, h, api.VMSpec{Name: "long", Weight: 1}, 10*iterations)
	busy(t, h, api.VMSpec{Name: "short", Weight: 4}, iterations)

	// Not in every interval: a guest that the host gives no processor has no work, whatever its
	// weight.
	h.Until("shares by the kernels' lengths", func() error {
		if long, short := used(h); long <= short {
			return fmt.Errorf("without a policy long kernels used %.3f s, short ones %.3f s", long, short)
		}
		return nil
	})
	dfq := "dfq"
	if _, err := h.Client.UpdateGPU(t.Context(), host.GPUName, api.GPUUpdate{Policy: &dfq}); err != nil {
		t.Fatal(err)
	}
	h.Until("shares by weight", func() error {
		if long, short := used(h); long >= short {
			return fmt.Errorf("by weight 1 long kernels used %.3f s, short ones by weight 4 %.3f s", long, short)
		}
		return nil
	})
	for _, name := range []string{"long", "short"} {
		if v := h.VM(name); v.Errors > 0 || v.Kernels == 0 {
			t.Errorf("%s: %d kernels, %d errors", name, v.Kernels, v.Errors)
		}
	}
	if v := h.VM("long"); v.Suspensions == 0 || v.SuspendedSeconds == 0 {
		t.Errorf("the guest with long kernels was never held: %+v", v)
	}
}

// used waits until each guest has used some GPU time from now on, by accounting, and returns how
// much.
func used(h *host.Host) (long, short float64) {
	const enough = 0.25
	longBefore, shortBefore := h.VM("long").GPUSeconds, h.VM("short").GPUSeconds
	h.Until("GPU time of both guests", func() error {
		long, short = h.VM("long").GPUSeconds-longBefore, h.VM("short").GPUSeconds-shortBefore
		if min(long, short) < enough {
			return fmt.Errorf("long: %.3f s, short: %.3f s of %v", long, short, enough)
		}
		return nil
	})
	return long, short
}

// busy creates a guest that always has kernels of that many iterations waiting, until stop is called
// or the test ends.
func busy(t *testing.T, h *host.Host, s api.VMSpec, iterations int) (stop func()) {
	t.Helper()
	return newBusyGuest(t, h, s, iterations).stop
}

// busyGuest is a guest that always has kernels waiting.
type busyGuest struct {
	kernels atomic.Uint64 // that have ended
	stop    func()
}

// newBusyGuest creates a guest that always has kernels of that many iterations waiting, until it is
// stopped or the test ends.
func newBusyGuest(t *testing.T, h *host.Host, s api.VMSpec, iterations int) *busyGuest {
	t.Helper()
	return keepBusy(t, s.Name, newContext(t, h, s), iterations)
}

// keepBusy has a guest's context always have kernels of that many iterations waiting.
func keepBusy(t *testing.T, name string, gpu *driver.Context, iterations int) *busyGuest {
	t.Helper()
	k, ok := corpus.ByName("throttle")
	if !ok {
		t.Fatal("the corpus has no throttle")
	}
	l, err := workload.NewLoad(t.Context(), gpu, k.PTX(corpus.SM80),
		corpus.Throttle(corpus.ThrottleConfig{Blocks: 1, Threads: 128, Iterations: iterations}))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), gpu.Own()); err != nil {
		t.Fatal(err)
	}
	w := new(busyGuest)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var pending [64]driver.Pending
		defer func() { // the guest has nothing to do any more when stop returns
			for i := range pending {
				_ = pending[i].Wait(context.Background()) // the guest may be gone
			}
		}()
		for i := 0; ctx.Err() == nil; i++ {
			p := &pending[i%len(pending)]
			err := p.Wait(ctx)
			if err == nil {
				if i >= len(pending) {
					w.kernels.Add(1)
				}
				err = gpu.Own().Enqueue(ctx, p, &l.Steps[0])
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
				return
			}
		}
	})
	w.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(w.stop)
	return w
}
