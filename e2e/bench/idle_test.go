package bench

import (
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
)

// BenchmarkIdleGuest measures the processor time of a guest's processes while the guest, which has
// used its context, does nothing: parts of one processor, for its virtual GPU and executor, the
// GPU, and the daemon.
func BenchmarkIdleGuest(b *testing.B) {
	h := host.Start(b, "dfq")
	gpu := newContext(b, h, "guest")
	newThrottle(b, gpu, time.Millisecond)
	vm := h.VM("guest").PID
	executors, err := proc.Children(vm)
	if err != nil || len(executors) != 1 {
		b.Fatalf("executors: %v, %v", executors, err)
	}
	processes := map[string][]int{
		"guest-cpu/s": {vm, executors[0]}, "gpu-cpu/s": {h.GPU.PID()}, "daemon-cpu/s": {h.Daemon.PID()},
	}
	used := func() map[string]time.Duration {
		sums := make(map[string]time.Duration)
		for name, pids := range processes {
			for _, pid := range pids {
				d, err := proc.CPUTime(pid)
				if err != nil {
					b.Fatal(err)
				}
				sums[name] += d
			}
		}
		return sums
	}
	time.Sleep(2 * time.Second) // a guest counts as active for a second
	before := used()
	begin := time.Now()
	for b.Loop() {
		time.Sleep(5 * time.Second)
	}
	length := time.Since(begin)
	for name, after := range used() {
		b.ReportMetric((after-before[name]).Seconds()/length.Seconds(), name)
	}
	b.ReportMetric(0, "ns/op")
}
