package vfiouser_test

import (
	"context"
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// registers is a device whose accesses cost nothing.
func registers(t testing.TB) *vfiousertest.Device {
	dev := gpuLike(t)
	dev.OnRead = func(uint32, uint64, []byte) error { return nil }
	dev.OnWrite = func(uint32, uint64, []byte) error { return nil }
	return dev
}

// BenchmarkRegionRead4 measures the round trip of a trapped register, with both ends in one
// process.
func BenchmarkRegionRead4(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.ReadUint32(0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegionWrite4(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteUint32(0, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegionWrite4Posted(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	p := make([]byte, 4)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.RegionWritePosted(0, 0, p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRegionWriteMulti sends 200 posted writes in a message, as QEMU packs them. The time is
// that of one write.
func BenchmarkRegionWriteMulti(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	writes := make([]vfiouser.WriteMultiEntry, 200)
	for i := range writes {
		writes[i].Count = 4
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(writes) == 0 {
			if err := c.WriteMulti(writes, true); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkRegionRead4WhileServing measures the cost of a permanent reader: every reply wakes one
// goroutine more.
func BenchmarkRegionRead4WhileServing(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = c.Serve(context.Background())
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.ReadUint32(0, 0); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	<-served
}

func BenchmarkRegionRead1MiB(b *testing.B) {
	c := vfiousertest.Client(b, registers(b))
	p := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if err := c.RegionRead(2, 0, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrigger(b *testing.B) {
	dev := registers(b)
	c := vfiousertest.Client(b, dev)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 0, eventfds(b, 1)...); err != nil {
		b.Fatal(err)
	}
	s := dev.Session()
	b.ReportAllocs()
	for b.Loop() {
		s.Trigger(vfiouser.IRQMSI, 0)
	}
}

// Neither end allocates for a register access or an interrupt.
func TestHotPathsDoNotAllocate(t *testing.T) {
	dev := registers(t)
	c := vfiousertest.Client(t, dev)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 0, eventfds(t, 1)...); err != nil {
		t.Fatal(err)
	}
	s := dev.Session()
	p := make([]byte, 8)
	for name, f := range map[string]func(){
		"read":    func() { _, _ = c.ReadUint32(0, 0) },
		"write":   func() { _ = c.WriteUint64(0, 0, 1) },
		"posted":  func() { _ = c.RegionWritePosted(0, 0, p) },
		"trigger": func() { s.Trigger(vfiouser.IRQMSI, 0) },
	} {
		for range 100 { // so that every call slot has its buffers
			f()
		}
		// The average over many runs, since allocations of the runtime are counted too.
		if n := testing.AllocsPerRun(1000, f); n > 0.1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
