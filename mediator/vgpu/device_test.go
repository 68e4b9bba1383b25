package vgpu_test

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]vgpu.Config{
		"shared memory not a power of two": {SharedBytes: 3 << 20},
		"shared memory too small":          {SharedBytes: 1 << 20},
		"shared memory too large":          {SharedBytes: 128 << 30},
		"negative shared memory":           {SharedBytes: -4 << 20},
		"contexts":                         {Contexts: abi.MaxContexts + 1},
		"channels":                         {Channels: abi.MaxChannels + 1},
		"vectors":                          {Vectors: 3},
		"many vectors":                     {Vectors: 64},
		"ring":                             {MaxRingEntries: 100},
		"window":                           {PollWindow: time.Hour},
	} {
		if _, err := vgpu.New(cfg, newStrict(cfg), nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	dev, err := vgpu.New(vgpu.Config{}, newStrict(vgpu.Config{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := dev.Config(); got.SharedBytes != abi.DefaultSharedBytes || got.Vectors != 32 || got.Contexts < 2 {
		t.Errorf("defaults: %+v", got)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// TestSharedMemoryIsSealed checks that no holder of the descriptor can change the file's size,
// which would end every process that touches the pages.
func TestSharedMemoryIsSealed(t *testing.T) {
	dev, err := vgpu.New(vgpu.Config{SharedBytes: abi.MinSharedBytes}, newStrict(vgpu.Config{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, size := range []int64{0, abi.MinSharedBytes / 2, abi.MinSharedBytes * 2} {
		if err := dev.Shared().Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(dev.Shared().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v, want EPERM", err)
	}
}

// TestAsAVMMSeesIt reads what QEMU reads at attach.
func TestAsAVMMSeesIt(t *testing.T) {
	h := newHostile(t, filepath.Join(t.TempDir(), "vgpu.sock"))
	defer h.close(t)
	client, err := vfiouser.Dial(t.Context(), h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	read := func(offset uint64) uint32 {
		v, err := client.ReadUint32(vfiouser.RegionConfig, offset)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := read(pci.VendorID); got != abi.DeviceID<<16|abi.VendorID {
		t.Errorf("ids %#x", got)
	}
	if got := read(pci.RevisionID); got != abi.ClassCode<<8|abi.RevisionID {
		t.Errorf("class and revision %#x", got)
	}
	pin := make([]byte, 1)
	if err := client.RegionRead(vfiouser.RegionConfig, pci.InterruptPin, pin); err != nil || pin[0] != 0 {
		t.Errorf("interrupt pin %d (%v): the first INTx would make QEMU unmap BAR2", pin[0], err)
	}
	// BAR sizing: ones written, the size's complement read back.
	var sizes [3]uint32
	for i, reg := range []uint64{pci.BaseAddress0, pci.BaseAddress0 + 8, pci.BaseAddress0 + 12} {
		if err := client.WriteUint32(vfiouser.RegionConfig, reg, 0xffffffff); err != nil {
			t.Fatal(err)
		}
		sizes[i] = read(reg)
	}
	if want := [3]uint32{^uint32(abi.BAR0Size - 1), ^uint32(abi.MinSharedBytes-1) | 0xc, 0xffffffff}; sizes != want {
		t.Errorf("BARs after sizing %#x, want %#x: 64 KiB, and the shared memory 64-bit prefetchable", sizes, want)
	}
	for index, want := range map[uint32]uint32{vfiouser.IRQINTx: 0, vfiouser.IRQMSI: 8, vfiouser.IRQMSIX: 0, vfiouser.IRQErr: 1} {
		info, err := client.IRQInfo(index)
		if err != nil || info.Count != want {
			t.Errorf("interrupt %d has %d vectors (%v), want %d", index, info.Count, err, want)
		}
	}
	info, areas, err := client.RegionInfo(vfiouser.RegionBAR0)
	if err != nil || info.Flags&vfiouser.RegionFlagMmap != 0 || info.Size != abi.BAR0Size {
		t.Errorf("BAR0: %+v %v (%v), must be trapped", info, areas, err)
	}
	// BAR2 by messages is the same memory as by mapping.
	m, err := client.Map(vfiouser.RegionBAR2)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	b := []byte("through the socket")
	if err := client.RegionWrite(vfiouser.RegionBAR2, abi.MinSharedBytes/2, b); err != nil {
		t.Fatal(err)
	}
	if got := m.Bytes(abi.MinSharedBytes/2, uint64(len(b))); string(got) != string(b) {
		t.Errorf("the mapping shows %q", got)
	}
	if magic := binary.LittleEndian.Uint32(m.Bytes(abi.DeviceMagicWord, 4)); magic != abi.Magic {
		t.Errorf("magic in BAR2 %#x", magic)
	}
}
