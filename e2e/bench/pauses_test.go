package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// BenchmarkAfterPause measures the time from a launch to its end, for an urgent guest's kernel of
// 0.1 ms after pauses of 1 to 5 ms beside a guest that does nothing, and the processor time of the
// urgent guest's processes. Busy waiting is on, since the automatic setting polls only on hosts
// with more processors.
func BenchmarkAfterPause(b *testing.B) {
	h := host.Start(b, "hpf")
	h.Config.GPUs[0].BusyWait = "true"
	if err := h.Daemon.End(); err != nil {
		b.Fatal(err)
	}
	h.StartDaemon()
	newContext(b, h, "batch")
	ctx := b.Context()
	dev := h.NewGuest(api.VMSpec{Name: "urgent", PriorityCeiling: api.MaxPriority})
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{Priority: -1})
	if err != nil {
		b.Fatal(err)
	}
	launch := newThrottle(b, gpu, 100*time.Microsecond)
	pids := []int{h.VM("urgent").PID}
	executors, err := proc.Children(pids[0])
	if err != nil {
		b.Fatal(err)
	}
	used := func() (sum time.Duration) {
		for _, pid := range append(pids, executors...) {
			d, err := proc.CPUTime(pid)
			if err != nil {
				b.Fatal(err)
			}
			sum += d
		}
		return sum
	}
	random := rand.New(rand.NewPCG(1, 2))
	before, begin := used(), time.Now()
	var p driver.Pending
	var all []time.Duration
	for b.Loop() {
		time.Sleep(time.Millisecond + time.Duration(random.Int64N(int64(4*time.Millisecond))))
		from := time.Now()
		err := gpu.Own().Enqueue(ctx, &p, launch)
		if err == nil {
			err = p.Wait(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(from))
	}
	b.ReportMetric((used()-before).Seconds()/time.Since(begin).Seconds(), "guest-cpu/s")
	b.ReportMetric(float64(gpu.Own().Doorbells())/float64(len(all)), "doorbells/op")
	reportLatency(b, all)
}
