package vfiouser_test

import (
	"bytes"
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

func access(region uint32, offset uint64, count uint32, data ...byte) []byte {
	return enc(&vfiouser.RegionAccess{Offset: offset, Region: region, Count: count}, data...)
}

func TestRegionRead(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.Regions[6] = vfiouser.Region{Size: 4096, Flags: vfiouser.RegionFlagWrite}
	dev.OnRead = func(region uint32, offset uint64, p []byte) error {
		switch offset {
		case 0x100:
			return syscall.EAGAIN
		case 0x104:
			return errors.New("broken")
		case 0x108:
			return nil // leaves p as it is
		}
		for i := range p {
			p[i] = byte(region)<<4 | byte(offset+uint64(i))&0xf
		}
		return nil
	}
	r := vfiousertest.Negotiated(t, dev)
	wantRefused(t, r, vfiouser.CmdRegionRead, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 15), want: syscall.EINVAL},
		{name: "with data", payload: access(0, 0, 1, 0), want: syscall.EINVAL},
		{name: "past the end", payload: access(0, 64<<10-3, 4), want: syscall.EINVAL},
		{name: "offset past the end", payload: access(0, 64<<10+1, 0), want: syscall.EINVAL},
		{name: "offset wraps", payload: access(0, math.MaxUint64, 4), want: syscall.EINVAL},
		{name: "too much", payload: access(2, 0, 1<<20+1), want: syscall.EINVAL},
		{name: "all there is", payload: access(0, 0, math.MaxUint32), want: syscall.EINVAL},
		{name: "absent region", payload: access(1, 0, 4), want: syscall.EINVAL},
		{name: "no region", payload: access(9, 0, 4), want: syscall.EINVAL},
		{name: "write-only region", payload: access(6, 0, 4), want: syscall.EINVAL},
		{name: "device returns EAGAIN", payload: access(0, 0x100, 4), want: syscall.EAGAIN},
		{name: "device fails", payload: access(0, 0x104, 4), want: syscall.EIO},
	})
	for _, c := range []struct {
		region uint32
		offset uint64
		count  uint32
	}{{0, 0, 1}, {0, 3, 2}, {2, 0x10, 4}, {7, 0x3d, 1}, {7, 0, 256}, {0, 64<<10 - 8, 8}, {0, 0, 0}, {2, 0, 1 << 20}} {
		p, errno := r.Request(vfiouser.CmdRegionRead, access(c.region, c.offset, c.count))
		if errno != 0 {
			t.Fatalf("%+v: %v", c, errno)
		}
		want := access(c.region, c.offset, c.count)
		for i := range c.count {
			want = append(want, byte(c.region)<<4|byte(c.offset+uint64(i))&0xf)
		}
		if !bytes.Equal(p, want) {
			t.Errorf("%+v: wrong data", c)
		}
	}
	if p, errno := r.Request(vfiouser.CmdRegionRead, access(0, 0x108, 4)); errno != 0 || !bytes.Equal(p[16:], make([]byte, 4)) {
		t.Errorf("a register that the device leaves alone reads %x, %v: data of an earlier request?", p[16:], errno)
	}
}

func TestRegionWrite(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	dev.Desc.Regions[6] = vfiouser.Region{Size: 4096, Flags: vfiouser.RegionFlagRead}
	r := vfiousertest.Negotiated(t, dev)
	wantRefused(t, r, vfiouser.CmdRegionWrite, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 15), want: syscall.EINVAL},
		{name: "too little data", payload: access(0, 0, 4, 1, 2, 3), want: syscall.EINVAL},
		{name: "too much data", payload: access(0, 0, 4, 1, 2, 3, 4, 5), want: syscall.EINVAL},
		{name: "past the end", payload: access(0, 64<<10-1, 2, 1, 2), want: syscall.EINVAL},
		{name: "offset wraps", payload: access(0, math.MaxUint64, 2, 1, 2), want: syscall.EINVAL},
		{name: "absent region", payload: access(1, 0, 1, 1), want: syscall.EINVAL},
		{name: "no region", payload: access(math.MaxUint32, 0, 1, 1), want: syscall.EINVAL},
		{name: "read-only region", payload: access(6, 0, 1, 1), want: syscall.EINVAL},
	})
	if p, errno := r.Request(vfiouser.CmdRegionWrite, access(0, 0x20, 3, 7, 8, 9)); errno != 0 || !bytes.Equal(p, access(0, 0x20, 3)) {
		t.Errorf("reply % x, %v", p, errno)
	}
	// A posted write gets no reply, even if it fails: the next reply is that of the read.
	r.Send(vfiouser.CmdRegionWrite, vfiouser.FlagNoReply, access(7, 4, 2, 5, 6))
	r.Send(vfiouser.CmdRegionWrite, vfiouser.FlagNoReply, access(9, 4, 2, 5, 6))
	if p, errno := r.Request(vfiouser.CmdRegionRead, access(7, 4, 2)); errno != 0 || !bytes.Equal(p[16:], []byte{5, 6}) {
		t.Errorf("posted write reads back % x, %v", p, errno)
	}
	want := []vfiousertest.Write{{Region: 0, Offset: 0x20, Data: []byte{7, 8, 9}}, {Region: 7, Offset: 4, Data: []byte{5, 6}}}
	if d := cmp.Diff(want, dev.Writes()); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
}

func multi(count uint64, writes ...vfiouser.WriteMultiEntry) []byte {
	b := []byte{byte(count), byte(count >> 8), byte(count >> 16), byte(count >> 24), byte(count >> 32), byte(count >> 40), byte(count >> 48), byte(count >> 56)}
	for i := range writes {
		b = append(b, enc(&writes[i])...)
	}
	return b
}

func TestRegionWriteMulti(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	r := vfiousertest.Negotiated(t, dev)
	w := vfiouser.WriteMultiEntry{Offset: 8, Region: 0, Count: 4, Data: [8]byte{1, 2, 3, 4}}
	long := w
	long.Count = 9
	outside := w
	outside.Offset = 64 << 10
	wantRefused(t, r, vfiouser.CmdRegionWriteMulti, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 7), want: syscall.EINVAL},
		{name: "fewer than announced", payload: multi(2, w), want: syscall.EINVAL},
		{name: "more than announced", payload: multi(0, w), want: syscall.EINVAL},
		{name: "count wraps", payload: multi(1<<61+1, w), want: syscall.EINVAL}, // (2⁶¹+1)·24 = 24 modulo 2⁶⁴
		{name: "9 bytes in 8", payload: multi(1, long), want: syscall.EINVAL},
		{name: "second outside", payload: multi(2, w, outside), want: syscall.EINVAL},
	})
	if n := len(dev.Writes()); n != 1 {
		t.Errorf("%d writes before the refused one, want 1", n)
	}
	// When its posted writes accumulate, QEMU sends 200 in one message without a reply.
	var many []vfiouser.WriteMultiEntry
	for i := range 200 {
		many = append(many, vfiouser.WriteMultiEntry{Offset: uint64(i) * 4, Region: 0, Count: 4, Data: [8]byte{byte(i)}})
	}
	p := multi(200, many...)
	if n := len(p) + vfiouser.SizeofHeader; n != 4824 {
		t.Fatalf("QEMU's message of 200 writes has 4824 bytes, this one %d", n)
	}
	r.Send(vfiouser.CmdRegionWriteMulti, vfiouser.FlagNoReply, p)
	if p, errno := r.Request(vfiouser.CmdRegionWriteMulti, multi(1, w)); errno != 0 || !bytes.Equal(p, multi(1)) {
		t.Errorf("reply % x, %v", p, errno)
	}
	if n := len(dev.Writes()); n != 1+200+1 {
		t.Errorf("%d writes, want 202", n)
	}
}

// A client reads back what it wrote, whatever the method and the sizes.
func TestClientReadsWhatItWrote(t *testing.T) {
	dev := gpuLike(t)
	c := vfiousertest.Client(t, dev)
	rapid.Check(t, func(t *rapid.T) {
		region := rapid.SampledFrom([]uint32{0, 2}).Draw(t, "region")
		n := rapid.IntRange(0, 3000).Draw(t, "bytes")
		offset := uint64(rapid.IntRange(0, 60000).Draw(t, "offset"))
		want := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
		var err error
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			err = c.RegionWrite(region, offset, want)
		case 1:
			err = c.RegionWritePosted(region, offset, want)
		default:
			var writes []vfiouser.WriteMultiEntry
			for at := 0; at < n; at += 8 {
				w := vfiouser.WriteMultiEntry{Region: region, Offset: offset + uint64(at)}
				w.Count = uint32(copy(w.Data[:], want[at:]))
				writes = append(writes, w)
			}
			err = c.WriteMulti(writes, rapid.Bool().Draw(t, "posted"))
		}
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if err := c.RegionRead(region, offset, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("read back differently")
		}
	})
}

func TestClientSplitsLargeTransfers(t *testing.T) {
	dev := gpuLike(t)
	dev.Desc.Regions[2].Size = 4 << 20
	dev.Desc.Regions[2].File = vfiousertest.Memfd(t, 4<<20)
	c := vfiousertest.Client(t, dev)
	want := make([]byte, 3<<20+5)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	if err := c.RegionWrite(2, 11, want); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := c.RegionRead(2, 11, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || len(dev.Writes()) != 4 {
		t.Errorf("equal %t, in %d writes", bytes.Equal(got, want), len(dev.Writes()))
	}
	if err := c.WriteMulti([]vfiouser.WriteMultiEntry{{Count: 9}}, false); err == nil {
		t.Error("9 bytes in a write of 8 are accepted")
	}
}

func TestRegisterHelpers(t *testing.T) {
	c := vfiousertest.Client(t, gpuLike(t))
	if err := c.WriteUint64(0, 8, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	lo, err1 := c.ReadUint32(0, 8)
	all, err2 := c.ReadUint64(0, 8)
	if lo != 0x55667788 || all != 0x1122334455667788 || err1 != nil || err2 != nil {
		t.Errorf("%#x, %#x, %v, %v", lo, all, err1, err2)
	}
	var e *vfiouser.Error
	if _, err := c.ReadUint32(1, 0); !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("absent region: %v", err)
	}
	if err := c.WriteUint32(0, 1<<30, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("outside: %v", err)
	}
	if _, err := c.ReadUint32(0, 8); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}
