package bench

import (
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
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
