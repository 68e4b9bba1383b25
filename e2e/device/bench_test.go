package device

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"vgpud/guestagent/driver"
)

// BenchmarkEmptyLaunch measures an empty kernel from submission to completion, with the executor
// polling and asleep.
func BenchmarkEmptyLaunch(b *testing.B) {
	for _, c := range []struct {
		name   string
		window time.Duration
	}{{"polled", 200 * time.Microsecond}, {"asleep", 0}} {
		b.Run(c.name, func(b *testing.B) {
			g := serve(b, c.window)
			dev, gpu := g.open(b)
			ctx := context.Background()
			mod, err := gpu.LoadModule(ctx, []byte("."))
			if err != nil {
				b.Fatal(err)
			}
			f, err := mod.Function(ctx, "empty")
			if err != nil {
				b.Fatal(err)
			}
			ch := gpu.Own()
			var p driver.Pending
			l := driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}
			var times []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				if err := ch.Enqueue(ctx, &p, &l); err != nil {
					b.Fatal(err)
				}
				if err := p.Wait(ctx); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begin))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "ns-p50")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "ns-p99")
			if err := dev.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkNops measures commands through one channel, each with a completion. Deeper rings pay off
// if other processes want the processors: more is done before the other side must get one.
func BenchmarkNops(b *testing.B) {
	for _, depth := range []int{1024, 16384} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			g := serve(b, 200*time.Microsecond)
			dev, gpu := g.open(b)
			ctx := context.Background()
			ch, err := gpu.NewChannel(ctx, driver.ChannelOptions{Depth: depth})
			if err != nil {
				b.Fatal(err)
			}
			var p driver.Pending
			b.ReportAllocs()
			b.ResetTimer()
			if err := ch.Nops(ctx, &p, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mcmd/s")
			b.StopTimer()
			if err := dev.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
