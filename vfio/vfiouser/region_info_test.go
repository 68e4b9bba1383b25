package vfiouser_test

import (
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

func TestDeviceGetRegionInfo(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	r := vfiousertest.Negotiated(t, dev)
	wantRefused(t, r, vfiouser.CmdDeviceGetRegionInfo, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 8), want: syscall.EINVAL},
		{name: "bad argsz", payload: enc(&vfiouser.RegionInfo{Argsz: 31}), want: syscall.EINVAL},
		{name: "bad index", payload: enc(&vfiouser.RegionInfo{Argsz: 32, Index: 9}), want: syscall.EINVAL},
		{name: "worse index", payload: enc(&vfiouser.RegionInfo{Argsz: 32, Index: math.MaxUint32}), want: syscall.EINVAL},
	})
	const size = 64 << 10
	sparse := []byte{1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}
	sparse = append(sparse, enc(&vfiouser.SparseMmapArea{Offset: 0, Size: 4096})...)
	sparse = append(sparse, enc(&vfiouser.SparseMmapArea{Offset: 8192, Size: 8192})...)
	for _, c := range []struct {
		name   string
		index  uint32
		argsz  uint32
		extra  int // bytes sent after the struct
		want   vfiouser.RegionInfo
		caps   []byte
		fileOf int // the region whose file is sent, -1 for none
	}{
		{"trapped", 0, 32, 0, vfiouser.RegionInfo{Argsz: 32, Flags: 3, Size: size}, nil, -1},
		{"trapped, larger argsz", 0, 40, 8, vfiouser.RegionInfo{Argsz: 32, Flags: 3, Size: size}, nil, -1},
		{"zero size", 1, 32, 0, vfiouser.RegionInfo{Argsz: 32, Index: 1}, nil, -1},
		{"zero size, not described", 8, 32, 0, vfiouser.RegionInfo{Argsz: 32, Index: 8}, nil, -1},
		{"wholly mapped", 2, 32, 0, vfiouser.RegionInfo{Argsz: 32, Flags: 7, Index: 2, Size: 1 << 20}, nil, 2},
		{"sparse, QEMU's first", 4, 32, 0, vfiouser.RegionInfo{Argsz: 80, Flags: 7, Index: 4, Size: size, Offset: size}, nil, -1},
		{"sparse, almost enough", 4, 79, 0, vfiouser.RegionInfo{Argsz: 80, Flags: 7, Index: 4, Size: size, Offset: size}, nil, -1},
		{"sparse, QEMU's second", 4, 80, 0, vfiouser.RegionInfo{Argsz: 80, Flags: 15, Index: 4, CapOffset: 32, Size: size, Offset: size}, sparse, 4},
		{"sparse, with room sent", 4, 80, 48, vfiouser.RegionInfo{Argsz: 80, Flags: 15, Index: 4, CapOffset: 32, Size: size, Offset: size}, sparse, 4},
		{"sparse, plenty", 4, math.MaxUint32, 0, vfiouser.RegionInfo{Argsz: 80, Flags: 15, Index: 4, CapOffset: 32, Size: size, Offset: size}, sparse, 4},
		{"config", 7, 32, 0, vfiouser.RegionInfo{Argsz: 32, Flags: 3, Index: 7, Size: 256}, nil, -1},
	} {
		m := r.RequestMessage(vfiouser.CmdDeviceGetRegionInfo,
			enc(&vfiouser.RegionInfo{Argsz: c.argsz, Index: c.index}, make([]byte, c.extra)...))
		if m.Errno != 0 || len(m.Payload) < vfiouser.SizeofRegionInfo {
			t.Errorf("%s: error %d, %d bytes", c.name, m.Errno, len(m.Payload))
			continue
		}
		var got vfiouser.RegionInfo
		got.UnmarshalBytes(m.Payload)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if d := cmp.Diff(c.caps, m.Payload[vfiouser.SizeofRegionInfo:], equateEmpty); d != "" {
			t.Errorf("%s: capabilities (-want +got):\n%s", c.name, d)
		}
		switch {
		case c.fileOf < 0 && len(m.FDs) != 0, c.fileOf >= 0 && len(m.FDs) != 1:
			t.Errorf("%s: %d descriptors", c.name, len(m.FDs))
		case c.fileOf >= 0 && !sameFile(t, m.FDs[0], dev.Desc.Regions[c.fileOf].File):
			t.Errorf("%s: the wrong file", c.name)
		}
	}
}

var equateEmpty = cmp.Transformer("text", func(b []byte) string { return string(b) })

func sameFile(t *testing.T, fd int, f *os.File) bool {
	t.Helper()
	var a, b syscall.Stat_t
	if err := syscall.Fstat(fd, &a); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Fstat(int(f.Fd()), &b); err != nil {
		t.Fatal(err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino
}

func TestGetRegionIOFDsIsNotSupported(t *testing.T) {
	r := vfiousertest.Negotiated(t, gpuLike(t))
	wantRefused(t, r, vfiouser.CmdDeviceGetRegionIOFDs, []refusal{{name: "BAR0", payload: make([]byte, 16), want: syscall.ENOTSUP}})
}
