package vgpu_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// TestEventArea: BAR4 is there with event kernels only, sealed, the same by messages as by mapping;
// a doorbell register of a kernel wakes, one of none is stray, and a reset zeroes all of it.
func TestEventArea(t *testing.T) {
	for _, features := range []abi.Features{0, abi.FeatureEventKernels | abi.FeatureEventDoorbells} {
		cfg := vgpu.Config{SharedBytes: abi.MinSharedBytes, Features: features}
		back := newStrict(cfg)
		dev, err := vgpu.New(cfg, back, nil)
		if err != nil {
			t.Fatal(err)
		}
		back.dev = dev
		l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "vgpu.sock"), nil)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- (&vfiouser.Server{Device: dev}).Serve(t.Context(), l) }()
		client, err := vfiouser.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		reg := func(off uint64) uint32 {
			v, err := client.ReadUint32(vfiouser.RegionBAR0, off)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		ring := func(n int) {
			if err := client.WriteUint32(vfiouser.RegionBAR0, uint64(abi.EventDoorbell(n)), 0); err != nil {
				t.Fatal(err)
			}
		}
		bar := func() uint32 {
			if err := client.WriteUint32(vfiouser.RegionConfig, pci.BaseAddress0+16, 0xffffffff); err != nil {
				t.Fatal(err)
			}
			v, err := client.ReadUint32(vfiouser.RegionConfig, pci.BaseAddress0+16)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}()
		info, _, err := client.RegionInfo(vfiouser.RegionBAR4)
		if err != nil {
			t.Fatal(err)
		}
		if features == 0 {
			ring(0)
			if bar != 0 || info.Size != 0 || dev.Events() != nil || reg(abi.RegEventDoorbells) != 0 || dev.Stats().StrayDoorbells != 0 {
				t.Errorf("without event kernels: BAR4 %#x, region %+v, stats %+v", bar, info, dev.Stats())
			}
		} else {
			if bar != ^uint32(abi.EventAreaBytes-1)|0xc || info.Size != abi.EventAreaBytes || reg(abi.RegEventDoorbells) != abi.MaxEventKernels {
				t.Errorf("BAR4 %#x, region %+v", bar, info)
			}
			if err := dev.Events().Truncate(0); !errors.Is(err, unix.EPERM) {
				t.Errorf("the area can be cut short: %v", err)
			}
			m, err := client.Map(vfiouser.RegionBAR4)
			if err != nil {
				t.Fatal(err)
			}
			area := m.Bytes(0, m.Size)
			if err := client.RegionWrite(vfiouser.RegionBAR4, 0x8000, []byte("event")); err != nil || string(area[0x8000:0x8005]) != "event" {
				t.Errorf("the mapping shows %q (%v)", area[0x8000:0x8005], err)
			}
			ring(2) // which the backend knows
			reg(abi.RegMagic)
			if got := abi.LoadWord(area, abi.EventKicksWord); got != 1 {
				t.Errorf("%d kicks, want 1", got)
			}
			for _, n := range []int{1, abi.MaxEventKernels, abi.MaxEventDoorbells - 1} {
				ring(n)
			}
			if got := dev.Stats(); got.StrayDoorbells != 3 || got.Doorbells != 1 || abi.LoadWord(area, abi.EventKicksWord) != 1 {
				t.Errorf("stray doorbells: %+v", got)
			}
			if err := client.WriteUint32(vfiouser.RegionBAR0, abi.RegReset, abi.ResetMagic); err != nil {
				t.Fatal(err)
			}
			reg(abi.RegMagic)
			if abi.LoadWord(area, abi.EventKicksWord) != 0 || area[0x8000] != 0 {
				t.Error("a reset leaves the area as it was")
			}
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-served
		if err := errors.Join(back.check(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}
