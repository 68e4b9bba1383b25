package host

import (
	"context"
	"math/rand/v2"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// Disturb starts an urgent guest, for whose launches other guests' kernels are evicted under a
// policy that does so. They come at random times until the end of the test.
func (h *Host) Disturb() {
	h.tb.Helper()
	dev := h.NewGuest(api.VMSpec{Name: "urgent", PriorityCeiling: api.MaxPriority})
	gpu, err := dev.NewContext(h.tb.Context(), driver.ContextOptions{Priority: -api.MaxPriority})
	if err != nil {
		h.tb.Fatal(err)
	}
	k, ok := corpus.ByName("scan")
	if !ok {
		h.tb.Fatal("the corpus has no scan")
	}
	l, err := workload.NewLoad(h.tb.Context(), gpu, k.PTX(corpus.SM80), k.Case(corpus.Trivial, 1))
	if err != nil {
		h.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			if err = l.Run(ctx, gpu.Own()); err == nil {
				err = clock.Sleep(ctx, clock.Real{}, rand.N(8*time.Millisecond))
			}
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	h.tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.tb.Errorf("the urgent guest: %v", err)
		}
	})
}
