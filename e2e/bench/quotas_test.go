package bench

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// quotaTime is how long quotas have to hold.
const quotaTime = 5 * time.Second

// BenchmarkCap measures how far a capped guest that has the GPU for itself is from its cap over
// five seconds, in points of the time by the host's clock. It keeps eight kernels of 200 µs
// waiting.
func BenchmarkCap(b *testing.B) {
	h := host.Start(b, "none")
	gpu := newContext(b, h, "capped")
	keepBacklog(b, gpu, newThrottle(b, gpu, 200*time.Microsecond))
	worst, n := 0.0, 0
	for b.Loop() {
		limit := []float64{0.1, 0.25, 0.5, 0.75}[n%4]
		if _, err := h.Client.UpdateVM(b.Context(), "capped", api.VMUpdate{Cap: &limit}); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, math.Abs(over(b, h)["capped"]-limit))
		n++
	}
	b.ReportMetric(100*worst, "worst-points")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGuarantee measures how much more a guest with kernels of 2 ms gets than the guarantee of
// another guest leaves to it, which has kernels of 200 µs and an eighth of its weight, over five
// seconds, in points of the time by the host's clock.
func BenchmarkGuarantee(b *testing.B) {
	for _, policy := range []string{"none", "dfq"} {
		b.Run(policy, func(b *testing.B) {
			h := host.Start(b, policy)
			for name, length := range map[string]time.Duration{"short": 200 * time.Microsecond, "long": 2 * time.Millisecond} {
				gpu := newContext(b, h, name)
				keepBacklog(b, gpu, newThrottle(b, gpu, length))
			}
			weight := 8.0
			if _, err := h.Client.UpdateVM(b.Context(), "long", api.VMUpdate{Weight: &weight}); err != nil {
				b.Fatal(err)
			}
			worst, n := math.Inf(-1), 0
			for b.Loop() {
				guarantee := []float64{0.2, 0.5, 0.8}[n%3]
				if _, err := h.Client.UpdateVM(b.Context(), "short", api.VMUpdate{Guarantee: &guarantee}); err != nil {
					b.Fatal(err)
				}
				worst = max(worst, over(b, h)["long"]-(1-guarantee))
				n++
			}
			b.ReportMetric(100*worst, "worst-points-over")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// over returns the part of the time that each guest used in the next five seconds, by the GPU's own
// records.
func over(b *testing.B, h *host.Host) map[string]float64 {
	b.Helper()
	look := func() map[string]float64 {
		vms, err := h.Client.VMs(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		own := make(map[string]float64)
		for _, v := range vms {
			if v.GPUSecondsOwn != nil {
				own[v.Name] = *v.GPUSecondsOwn
			}
		}
		return own
	}
	begin, before := time.Now(), look()
	time.Sleep(quotaTime)
	after, length := look(), time.Since(begin).Seconds()
	used := make(map[string]float64)
	for name, s := range after {
		used[name] = (s - before[name]) / length
	}
	return used
}

// keepBacklog keeps eight launches waiting until the benchmark ends.
func keepBacklog(b *testing.B, gpu *driver.Context, l *driver.Launch) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var pending [8]driver.Pending
		for i := 0; ctx.Err() == nil; i++ {
			p := &pending[i%len(pending)]
			err := p.Wait(ctx)
			if err == nil {
				err = gpu.Own().Enqueue(ctx, p, l)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}
