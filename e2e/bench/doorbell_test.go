package bench

import (
	"context"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// BenchmarkDoorbellFlood measures what a guest that only rings a doorbell costs the host: each ring
// is a message that waits for its reply, as QEMU sends it. It reports the processor time of the
// guest's virtual GPU and executor for each ring. Suspended, the guest has work in its ring but is
// over its cap.
func BenchmarkDoorbellFlood(b *testing.B) {
	for _, c := range []struct {
		name string
		cap  float64 // 0: the guest has no work
	}{{"idle", 0}, {"suspended", 0.02}} {
		b.Run(c.name, func(b *testing.B) {
			h := host.Start(b, "dfq")
			vm := h.NewVM(api.VMSpec{Name: "guest", Cap: c.cap, BAR2Bytes: 64 << 20})
			client, err := vfiouser.Dial(b.Context(), vm.Socket)
			if err != nil {
				b.Fatal(err)
			}
			gpu := onClient(b, client)
			if c.cap > 0 {
				staysBusy(b, gpu)
			}
			executors, err := proc.Children(vm.PID)
			if err != nil || len(executors) != 1 {
				b.Fatalf("executors: %v, %v", executors, err)
			}
			spent := func() [2]time.Duration {
				var d [2]time.Duration
				for i, pid := range []int{vm.PID, executors[0]} {
					if d[i], err = proc.CPUTime(pid); err != nil {
						b.Fatal(err)
					}
				}
				return d
			}
			time.Sleep(2 * time.Second) // the cap bites
			before, suspended, begin := spent(), h.VM("guest").SuspendedSeconds, time.Now()
			for b.Loop() {
				if err := client.WriteUint32(vfiouser.RegionBAR0, uint64(abi.Doorbell(0)), 0); err != nil {
					b.Fatal(err)
				}
			}
			length, after := time.Since(begin), spent()
			for i, name := range []string{"vm-µs/ring", "executor-µs/ring"} {
				b.ReportMetric(float64((after[i]-before[i]).Nanoseconds())/1e3/float64(b.N), name)
			}
			b.ReportMetric((h.VM("guest").SuspendedSeconds-suspended)/length.Seconds(), "suspended")
			b.ReportMetric((after[0]-before[0]+after[1]-before[1]).Seconds()/length.Seconds(), "cpu/s")
		})
	}
}

// onClient makes a context of a guest that attached through this client.
func onClient(b *testing.B, client *vfiouser.Client) *driver.Context {
	b.Helper()
	bus, err := driver.NewVFIOUserBus(client)
	if err != nil {
		b.Fatal(err)
	}
	dev, err := driver.Open(b.Context(), bus)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = dev.Close() }) // with work that is not over
	gpu, err := dev.NewContext(b.Context(), driver.ContextOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return gpu
}

// staysBusy launches short kernels one after the other until the benchmark ends.
func staysBusy(b *testing.B, gpu *driver.Context) {
	b.Helper()
	launch := newThrottle(b, gpu, time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var p driver.Pending
		for gpu.Own().Enqueue(ctx, &p, launch) == nil && p.Wait(ctx) == nil {
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-done
	})
}
