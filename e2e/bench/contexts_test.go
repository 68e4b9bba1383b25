package bench

import (
	"fmt"
	"sync"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// BenchmarkContexts measures how many short kernels a second a guest launches from one context and
// from several at once: waiting for each, and with many under way.
func BenchmarkContexts(b *testing.B) {
	h := host.Start(b, "dfq")
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	ctx := b.Context()
	type program struct {
		ch     *driver.Channel
		launch driver.Launch
	}
	var programs []program
	for range 4 {
		gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
		if err != nil {
			b.Fatal(err)
		}
		m, err := gpu.LoadModule(ctx, []byte(emptyKernel))
		if err != nil {
			b.Fatal(err)
		}
		f, err := m.Function(ctx, "empty")
		if err != nil {
			b.Fatal(err)
		}
		programs = append(programs, program{gpu.Own(), driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}})
	}
	for _, contexts := range []int{1, 4} {
		for _, depth := range []int{1, 32} {
			b.Run(fmt.Sprintf("contexts=%d/under-way=%d", contexts, depth), func(b *testing.B) {
				var wg sync.WaitGroup
				for i := range programs[:contexts] {
					p := &programs[i]
					wg.Go(func() {
						pending := make([]driver.Pending, depth)
						for n := range b.N / contexts {
							at := &pending[n%depth]
							err := at.Wait(ctx)
							if err == nil {
								err = p.ch.Enqueue(ctx, at, &p.launch)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
						for i := range pending {
							if err := pending[i].Wait(ctx); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "launches/s")
			})
		}
	}
}
