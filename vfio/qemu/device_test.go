package qemu_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"vgpud/vfio/pci"
	"vgpud/vfio/qemu"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// device is a vfio-user device for a VM: registers in BAR0, 64 MiB of mapped memory in BAR2, MSI.
type device struct {
	*vfiousertest.Device
	id, socket string

	mu     sync.Mutex
	config *pci.Space
	gone   chan struct{} // receives one value for each VMM that has disconnected
}

// serveDevice serves a device with the given ID until the test ends.
func serveDevice(t *testing.T, id string) *device {
	t.Helper()
	const registers, memory = 4 << 10, 64 << 20
	config, err := pci.New(pci.Function{
		VendorID: 0x1f5a, DeviceID: 1, Class: 0x120000,
		BARs: [pci.NumBARs]pci.BAR{
			0: {Size: registers},
			2: {Size: memory, Is64: true, Prefetchable: true},
		},
		PowerManagement: true,
		Express:         &pci.Express{},
		MSI:             &pci.MSI{Vectors: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	const rw = vfiouser.RegionFlagRead | vfiouser.RegionFlagWrite
	desc := vfiouser.Description{
		Regions: make([]vfiouser.Region, vfiouser.NumRegions),
		IRQs:    make([]vfiouser.IRQ, vfiouser.NumIRQs),
	}
	desc.Regions[vfiouser.RegionBAR0] = vfiouser.Region{Size: registers, Flags: rw}
	desc.Regions[vfiouser.RegionBAR2] = vfiouser.Region{Size: memory, Flags: rw, File: vfiousertest.Memfd(t, memory)}
	desc.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: uint64(config.Len()), Flags: rw}
	desc.IRQs[vfiouser.IRQMSI] = vfiouser.IRQ{Count: 4, Flags: vfiouser.IRQFlagNoResize}
	desc.IRQs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1}

	d := &device{Device: &vfiousertest.Device{Desc: desc}, config: config, gone: make(chan struct{}, 16)}
	store := &vfiousertest.Device{Desc: desc}
	d.OnRead = func(region uint32, offset uint64, p []byte) error {
		if region != vfiouser.RegionConfig {
			return store.RegionRead(region, offset, p)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.config.Read(offset, p)
	}
	d.OnWrite = func(region uint32, offset uint64, p []byte) error {
		if region != vfiouser.RegionConfig {
			return store.RegionWrite(region, offset, p)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		_, err := d.config.Write(offset, p)
		return err
	}
	d.OnReset = func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.config.Reset()
		return nil
	}
	d.OnDetach = func(*vfiouser.Session) {
		_ = d.OnReset()
		d.gone <- struct{}{}
	}
	d.serve(t, id)
	return d
}

// on returns the device, plugged into a bus.
func (d *device) on(bus string) qemu.Device {
	return qemu.Device{ID: d.id, Socket: d.socket, Bus: bus}
}

func (d *device) serve(t *testing.T, id string) {
	t.Helper()
	d.id, d.socket = id, filepath.Join(t.TempDir(), "d.sock")
	l, err := vfiouser.Listen(d.socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	srv := &vfiouser.Server{Device: d.Device, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if s := srv.Stats(); s.Errors != 0 || s.Broken != 0 {
			t.Errorf("QEMU and the device %s disagree: %+v", id, s)
		}
	})
}
