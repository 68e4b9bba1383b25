package vfio_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/guestagent/vfio"
	"vgpud/guestagent/vfio/vfiotest"
)

// TestSizes compares the structures with sizeof in include/uapi/linux/vfio.h.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want int
	}{
		"vfio_group_status":   {vfio.GroupStatus{}.Encode(), 8},
		"vfio_device_info":    {vfio.DeviceInfo{}.Encode(), 20},
		"vfio_region_info":    {vfio.RegionInfo{}.Encode(), 32},
		"vfio_irq_info":       {vfio.IRQInfo{}.Encode(), 16},
		"vfio_irq_set":        {vfio.IRQSet{}.Encode(), 20},
		"with three eventfds": {vfio.IRQSet{FDs: []int32{1, 2, 3}}.Encode(), 32},
	} {
		if len(c.got) != c.want || int(c.got[0]) != c.want {
			t.Errorf("%s: %d bytes, argsz %d, want %d", name, len(c.got), c.got[0], c.want)
		}
	}
	if vfio.DeviceSetIRQs != 0x3b6e {
		t.Errorf("VFIO_DEVICE_SET_IRQS is %#x", vfio.DeviceSetIRQs)
	}
}

// TestCodec checks that decoding inverts encoding.
func TestCodec(t *testing.T) {
	region := vfio.RegionInfo{Flags: 1, Index: 2, CapOffset: 3, Bytes: 1 << 40, Offset: 1 << 41}
	var gotRegion vfio.RegionInfo
	gotRegion.Decode(region.Encode())
	set := vfio.IRQSet{Flags: 1, Index: 2, Start: 3, Count: 4, FDs: []int32{5, -1}}
	var gotSet vfio.IRQSet
	gotSet.Decode(set.Encode())
	if diff := cmp.Diff(region, gotRegion) + cmp.Diff(set, gotSet); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

const address = "0000:00:10.0"

var where = vfio.Location{Container: "/dev/vfio/vfio", Group: "/dev/vfio/3", Address: address}

// kernel returns a fake kernel whose device has two BARs.
func kernel(t *testing.T) *vfiotest.Kernel {
	t.Helper()
	k := &vfiotest.Kernel{Address: address, Vectors: 32}
	for _, bar := range []int{0, 2} {
		k.BARs[bar] = filepath.Join(t.TempDir(), "bar")
		if err := os.WriteFile(k.BARs[bar], make([]byte, 4096<<bar), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func TestOpen(t *testing.T) {
	for _, noIOMMU := range []bool{false, true} {
		k := kernel(t)
		w := where
		k.NoIOMMU, w.NoIOMMU = noIOMMU, noIOMMU
		d, err := vfio.Open(k, w)
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Map(vfio.RegionBAR2)
		if err != nil || len(b) != 16384 {
			t.Errorf("Map: %d bytes, %v", len(b), err)
		}
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
		if _, err := d.Map(1); err == nil || !strings.Contains(err.Error(), "can't be mapped") {
			t.Errorf("Map of a BAR that is not there: %v", err)
		}
		if n, err := d.IRQs(vfio.IRQErr); n != 0 || err != nil {
			t.Errorf("IRQs of what is not there: %d, %v", n, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := k.OpenFiles(); n != 0 {
			t.Errorf("%d descriptors are left", n)
		}
		if _, err := d.Map(0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Map after Close: %v", err)
		}
	}
}

// TestFewerVectors has the kernel answer how many vectors are possible.
func TestFewerVectors(t *testing.T) {
	k := kernel(t)
	k.Granted = 1
	d, err := vfio.Open(k, where)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	n, err := d.SetIRQs(vfio.IRQMSI, []int{fd, fd, fd, fd, fd, fd})
	if n != 1 || err != nil {
		t.Fatalf("SetIRQs: %d, %v", n, err)
	}
	if err := k.Raise(vfio.IRQMSI, 0); err != nil {
		t.Error(err)
	}
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil || count[0] != 1 {
		t.Errorf("eventfd: %v, %v", count, err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*vfiotest.Kernel, *vfio.Location)
		want  string
		is    error
	}{
		"busy":         {func(k *vfiotest.Kernel, _ *vfio.Location) { k.Busy = true }, "another process", vfio.ErrBusy},
		"not viable":   {func(k *vfiotest.Kernel, _ *vfio.Location) { k.NotViable = true }, "other devices of the group", nil},
		"no remapping": {func(k *vfiotest.Kernel, _ *vfio.Location) { k.NoRemapping = true }, "intremap=on", unix.EPERM},
		"other device": {func(_ *vfiotest.Kernel, w *vfio.Location) { w.Address = "0000:00:11.0" }, "get the device", unix.ENODEV},
	} {
		t.Run(name, func(t *testing.T) {
			k, w := kernel(t), where
			c.spoil(k, &w)
			_, err := vfio.Open(k, w)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("Open: %v, want %q", err, c.want)
			}
			if n := k.OpenFiles(); n != 0 {
				t.Errorf("%d descriptors are left", n)
			}
		})
	}
}
