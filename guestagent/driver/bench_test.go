package driver_test

import (
	"testing"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// launcher returns a channel whose host polls, and a launch of an empty kernel.
func launcher(t testing.TB) (*driver.Channel, *driver.Launch) {
	t.Helper()
	_, _, gpu := open(t, drivertest.Options{PollWindow: time.Millisecond})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	f := must[*driver.Function](t)(mod.Function(ctx, "empty"))
	return must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{})), &driver.Launch{Function: f}
}

// BenchmarkEnqueue measures what a launch costs the caller, with the host in the same process and a
// wait for every 256th launch.
func BenchmarkEnqueue(b *testing.B) {
	ch, l := launcher(b)
	ctx := b.Context()
	var p [256]driver.Pending
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := ch.Enqueue(ctx, &p[i%len(p)], l); err != nil {
			b.Fatal(err)
		}
		if i%len(p) == len(p)-1 {
			if err := p[i%len(p)].Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	check(b, ch.Sync(ctx))
}

// BenchmarkNops measures the rings alone.
func BenchmarkNops(b *testing.B) {
	ch, _ := launcher(b)
	var p driver.Pending
	b.ReportAllocs()
	b.ResetTimer()
	check(b, ch.Nops(b.Context(), &p, b.N))
}

// BenchmarkDoorbell writes a register of a PCI function in plain memory: what the driver adds to
// the trap.
func BenchmarkDoorbell(b *testing.B) {
	p := tree(b, map[string]function{address: ours})
	p.Heartbeat = time.Hour
	bus := must[*driver.PCIBus](b)(driver.OpenPCI(b.Context(), p, ""))
	b.ReportAllocs()
	for b.Loop() {
		if err := bus.Doorbell(uint32(abi.Doorbell(0))); err != nil {
			b.Fatal(err)
		}
	}
	check(b, bus.Close())
}

func TestEnqueueAllocatesNothing(t *testing.T) {
	ch, l := launcher(t)
	ctx := t.Context()
	var p driver.Pending
	n := testing.AllocsPerRun(200, func() {
		check(t, ch.Enqueue(ctx, &p, l))
		for !p.Done() {
			check(t, p.Wait(ctx))
		}
	})
	if n >= 1 { // waiting may make a timer or a channel, now and then
		t.Errorf("a launch allocates %v times", n)
	}
}
