package vfiouser_test

import (
	"context"
	"encoding/binary"
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// gpuLike is a device shaped like the virtual GPU: registers in BAR0, shared memory in BAR2, MSI.
func gpuLike(t testing.TB) *vfiousertest.Device {
	desc := vfiouser.Description{
		Regions: make([]vfiouser.Region, vfiouser.NumRegions),
		IRQs:    make([]vfiouser.IRQ, vfiouser.NumIRQs),
	}
	rw := uint32(vfiouser.RegionFlagRead | vfiouser.RegionFlagWrite)
	desc.Regions[vfiouser.RegionBAR0] = vfiouser.Region{Size: 64 << 10, Flags: rw}
	desc.Regions[vfiouser.RegionBAR2] = vfiouser.Region{Size: 1 << 20, Flags: rw, File: vfiousertest.Memfd(t, 1<<20)}
	desc.Regions[vfiouser.RegionBAR4] = vfiouser.Region{
		Size: 64 << 10, Flags: rw, File: vfiousertest.Memfd(t, 128<<10), FileOffset: 64 << 10,
		Areas: []vfiouser.SparseMmapArea{{Offset: 0, Size: 4096}, {Offset: 8192, Size: 8192}},
	}
	desc.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: 256, Flags: rw}
	desc.IRQs[vfiouser.IRQMSI] = vfiouser.IRQ{Count: 32, Flags: vfiouser.IRQFlagNoResize}
	desc.IRQs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1}
	return &vfiousertest.Device{Desc: desc}
}

func TestClientTour(t *testing.T) {
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	info, err := c.DeviceInfo()
	if err != nil || info.NumRegions != 9 || info.NumIRQs != 5 || info.Flags != vfiouser.DeviceFlagPCI|vfiouser.DeviceFlagReset {
		t.Fatalf("device info %+v, %v", info, err)
	}
	if err := c.WriteUint32(vfiouser.RegionBAR0, 0x40, 0xdecade); err != nil {
		t.Fatal(err)
	}
	if v, err := c.ReadUint32(vfiouser.RegionBAR0, 0x40); err != nil || v != 0xdecade {
		t.Fatalf("read %#x, %v", v, err)
	}
	m, err := c.Map(vfiouser.RegionBAR2)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	binary.LittleEndian.PutUint32(m.Bytes(0x1000, 4), 77)
	if v, err := c.ReadUint32(vfiouser.RegionBAR2, 0x1000); err != nil || v != 77 {
		t.Fatalf("mapped word reads %d through the device, %v", v, err)
	}
	sparse, err := c.Map(vfiouser.RegionBAR4)
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Unmap()
	if len(sparse.Areas) != 2 || sparse.Areas[1].Offset != 8192 || sparse.Bytes(4096, 4) != nil {
		t.Fatalf("areas %v", sparse.Areas)
	}
	sparse.Bytes(8192+4, 1)[0] = 5
	var b [1]byte
	if err := c.RegionRead(vfiouser.RegionBAR4, 8192+4, b[:]); err != nil || b[0] != 5 {
		t.Fatalf("mapped byte reads %d through the device, %v", b[0], err)
	}
	ev, err := vfiouser.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	if err := c.EnableIRQs(vfiouser.IRQMSI, 3, ev); err != nil {
		t.Fatal(err)
	}
	if !dev.Session().Trigger(vfiouser.IRQMSI, 3) || dev.Session().Trigger(vfiouser.IRQMSI, 2) {
		t.Fatal("vector 3 has a listener and vector 2 has none")
	}
	if n, err := ev.Wait(context.Background()); n != 1 || err != nil {
		t.Fatalf("waited: %d, %v", n, err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
}
