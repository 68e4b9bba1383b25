package bench

import (
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
)

// BenchmarkNops sends commands that do nothing through one channel, from a guest to its executor
// and back, alone and beside two busy processes.
func BenchmarkNops(b *testing.B) {
	h := host.Start(b, "dfq")
	gpu := newContext(b, h, "guest")
	ch, err := gpu.NewChannel(b.Context(), driver.ChannelOptions{Depth: 4096})
	if err != nil {
		b.Fatal(err)
	}
	run := func(b *testing.B) {
		var p driver.Pending
		if err := ch.Nops(b.Context(), &p, b.N); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "M/s")
	}
	b.Run("alone", run)
	b.Run("beside-2-busy", func(b *testing.B) {
		besideBusy(b, 2)
		b.ResetTimer()
		run(b)
	})
}

const emptyKernel = `.version 8.0
.target sm_80
.address_size 64
.visible .entry empty()
{
	ret;
}
`

// BenchmarkEmptyKernel measures the time from a launch to its completion for a kernel that does
// nothing, while all processes on the way still poll, and when all of them sleep.
func BenchmarkEmptyKernel(b *testing.B) {
	h := host.Start(b, "dfq")
	gpu := newContext(b, h, "guest")
	ctx := b.Context()
	m, err := gpu.LoadModule(ctx, []byte(emptyKernel))
	if err != nil {
		b.Fatal(err)
	}
	f, err := m.Function(ctx, "empty")
	if err != nil {
		b.Fatal(err)
	}
	launch := driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}
	// once launches and waits, and says how long that took.
	once := func(b *testing.B, p *driver.Pending) time.Duration {
		begin := time.Now()
		err := gpu.Own().Enqueue(ctx, p, &launch)
		if err == nil {
			err = p.Wait(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	b.Run("polled", func(b *testing.B) {
		var p driver.Pending
		for range 100 {
			once(b, &p)
		}
		var all []time.Duration
		for b.Loop() {
			all = append(all, once(b, &p))
		}
		reportLatency(b, all)
	})
	b.Run("asleep", func(b *testing.B) {
		var p driver.Pending
		var all []time.Duration
		for b.Loop() {
			time.Sleep(3 * time.Millisecond) // more than anyone's window
			all = append(all, once(b, &p))
		}
		reportLatency(b, all)
	})
}
