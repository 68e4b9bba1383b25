package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// BenchmarkAccountingCost measures what accounting costs a guest: the guest's kernels a second
// while the daemon runs, divided by those while it does not, over several alternations. The guest
// keeps eight kernels of 200 µs waiting, or has one at a time, where every delay counts.
func BenchmarkAccountingCost(b *testing.B) {
	for _, c := range []struct {
		name  string
		depth int
	}{{"eight-waiting", 8}, {"one-at-a-time", 1}} {
		b.Run(c.name, func(b *testing.B) {
			h := host.Start(b, "dfq")
			gpu := newContext(b, h, "guest")
			launch := newThrottle(b, gpu, 200*time.Microsecond)
			var watched, alone float64
			n := 0
			for b.Loop() {
				watched += rate(b, gpu.Own(), launch, c.depth)
				if err := h.Daemon.End(); err != nil {
					b.Fatal(err)
				}
				alone += rate(b, gpu.Own(), launch, c.depth)
				h.StartDaemon()
				n++
			}
			b.ReportMetric(watched/float64(n), "watched-kernels/s")
			b.ReportMetric(alone/float64(n), "alone-kernels/s")
			b.ReportMetric(watched/alone, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// rate is how many kernels end a second.
func rate(b *testing.B, ch *driver.Channel, l *driver.Launch, depth int) float64 {
	b.Helper()
	const length = 500 * time.Millisecond
	pending := make([]driver.Pending, depth)
	begin, n := time.Now(), 0
	for ; time.Since(begin) < length; n++ {
		p := &pending[n%depth]
		if err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := ch.Enqueue(b.Context(), p, l); err != nil {
			b.Fatal(err)
		}
	}
	if err := ch.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return float64(n) / time.Since(begin).Seconds()
}

// BenchmarkAccountingError compares what guests are charged with the GPU's own count of them, over
// so much GPU time that the chance of being watched, a sixth of the time, averages out: of two guests
// that always have work, and of one whose host process pauses between kernels. Errors are in percent
// of the count, negative if too little was charged; gaps are the part of watched time in which the
// sampler had no processor, and late that of the count in which the GPU had none. Both, and the load,
// say how quiet the machine was.
func BenchmarkAccountingError(b *testing.B) {
	const enough = 20.0 // seconds of GPU time
	for b.Loop() {
		h := host.Start(b, "dfq")
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		guest := func(name string, length, pause time.Duration) {
			gpu := newContext(b, h, name)
			launch := newThrottle(b, gpu, length)
			wg.Go(func() {
				var pending [8]driver.Pending
				for i := 0; ctx.Err() == nil; i++ {
					p := &pending[i%len(pending)]
					err := p.Wait(ctx)
					if err == nil {
						err = gpu.Own().Enqueue(ctx, p, launch)
					}
					if err == nil && pause > 0 {
						if err = p.Wait(ctx); err == nil {
							err = clock.Sleep(ctx, clock.Real{}, pause)
						}
					}
					if err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
				}
			})
		}
		guest("long", 2*time.Millisecond, 0)
		guest("short", 200*time.Microsecond, 0)
		guest("pausing", 500*time.Microsecond, 2*time.Millisecond)
		var vms []api.VM
		counted, accounted := 0.0, 0.0
		h.Until("enough GPU time", func() (err error) {
			if vms, err = h.Client.VMs(b.Context()); err != nil {
				return err
			}
			counted, accounted = 0, 0
			for _, v := range vms {
				counted += *v.GPUSecondsOwn
				accounted += v.GPUSeconds
			}
			if counted < enough {
				return fmt.Errorf("%.1f of %v s", counted, enough)
			}
			return nil
		})
		gpus, err := h.Client.GPUs(b.Context())
		cancel()
		wg.Wait()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(100*(accounted-counted)/counted, "%error")
		for _, v := range vms {
			b.ReportMetric(100*(v.GPUSeconds-*v.GPUSecondsOwn) / *v.GPUSecondsOwn, "%error-"+v.Name)
		}
		b.ReportMetric(100*gpus[0].GapSeconds/gpus[0].WatchedSeconds, "%gaps")
		b.ReportMetric(100*gpus[0].OverrunSeconds/counted, "%late")
		b.ReportMetric(load(b), "load")
		b.ReportMetric(0, "ns/op")
	}
}

// load returns the host's load of the last minute.
func load(b *testing.B) (l float64) {
	b.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &l)
	}
	if err != nil {
		b.Fatal(err)
	}
	return l
}
