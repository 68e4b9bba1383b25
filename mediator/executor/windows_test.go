package executor

import (
	"encoding/binary"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// TestWindowAddress checks that kernels reach windows at their addresses, where the guest has them or
// where the device puts them, and that the windows stay where the first command has put them.
func TestWindowAddress(t *testing.T) {
	const chosen = 0x0a00_0000_0000
	for _, at := range []uint64{0, chosen + staging} {
		r := newRig(t, gpu.ContextOptions{})
		g := r.open()
		address := func(offset, bytes, at uint64) abi.Completion {
			return g.call(abi.Header{Op: abi.OpWindowAddress}, abi.Mapping{Window: abi.Window{Offset: offset, Size: bytes}, Address: at})
		}
		c := address(staging, 4096, at)
		p := c.Value[0]
		if c.Status != abi.StatusOK || p == 0 || at != 0 && p != at {
			t.Fatalf("window at %#x, asked for %#x: %v", p, at, c.Status)
		}
		last := uint64(sharedBytes - 128)
		for offset, want := range map[uint64]uint64{last: p + last - staging, uint64(r.header + r.rings): p - (staging - uint64(r.header+r.rings))} {
			for _, at := range []uint64{0, want} {
				if c := address(offset, 128, at); c.Status != abi.StatusOK || c.Value[0] != want {
					t.Errorf("window at offset %#x is at %#x, want %#x: %v", offset, c.Value[0], want, c.Status)
				}
			}
		}
		binary.LittleEndian.PutUint32(r.shared[last:], 41)
		l, params := launchOf(g.load(incPTX, "inc"), 1, p+last-staging)
		g.must(abi.OpLaunch, l, params...)
		if v := binary.LittleEndian.Uint32(r.shared[last:]); v != 42 {
			t.Errorf("the kernel left %d", v)
		}
		g.must(abi.OpSet, abi.Set{Dst: p + last - staging, Count: 8, Rows: 1, Value: 0xabcd, Width: 4})
		if v := binary.LittleEndian.Uint32(r.shared[last+28:]); v != 0xabcd {
			t.Errorf("set to %#x", v)
		}
		for name, x := range map[string]struct {
			m    abi.Mapping
			want abi.Status
		}{
			"elsewhere":     {abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}, Address: p + 4096}, abi.StatusInvalidAddress},
			"the header":    {abi.Mapping{Window: abi.Window{Offset: 0, Size: 64}}, abi.StatusInvalidWindow},
			"a ring":        {abi.Mapping{Window: abi.Window{Offset: uint64(r.header), Size: 64}}, abi.StatusInvalidWindow},
			"past the end":  {abi.Mapping{Window: abi.Window{Offset: last, Size: 129}}, abi.StatusInvalidWindow},
			"over the end":  {abi.Mapping{Window: abi.Window{Offset: ^uint64(0), Size: 64}}, abi.StatusInvalidWindow},
			"a low address": {abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}, Address: 4096}, abi.StatusInvalidAddress},
			"half a page":   {abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}, Address: p + 64}, abi.StatusInvalidAddress},
		} {
			if c := g.call(abi.Header{Op: abi.OpWindowAddress}, x.m); c.Status != x.want {
				t.Errorf("%s: %v, want %v", name, c.Status, x.want)
			}
		}
		if s := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: p}).Status; s != abi.StatusInvalidAddress {
			t.Errorf("free a window: %v", s)
		}
		// Rings and header are not there.
		l, params = launchOf(l.Function, 1, p-staging+uint64(r.header+r.rings)-4)
		if s := g.call(abi.Header{Op: abi.OpLaunch}, l, params...).Status; s != abi.StatusIllegalAddress {
			t.Errorf("a kernel stored to a ring: %v", s)
		}
	}
}

// TestWindowAddressTaken checks that a place where something is is refused, and another can be had
// then, and that a guest whose rings may lie among the windows has no addresses of them.
func TestWindowAddressTaken(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	p := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096}).Value[0]
	ask := func(at uint64) abi.Status {
		return g.call(abi.Header{Op: abi.OpWindowAddress}, abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}, Address: at}).Status
	}
	for _, at := range []uint64{p &^ 4095, 0x6fff_ffff_f000 + staging%4096, 0xffff_ffff_ffff_f000} {
		if s := ask(at); s != abi.StatusInvalidAddress {
			t.Errorf("window at %#x: %v", at, s)
		}
	}
	if s := ask(0x0a00_0000_0000); s != abi.StatusOK {
		t.Errorf("window at a free place: %v", s)
	}
	old := newRig(t, gpu.ContextOptions{})
	old.x.o.Mappable = nil
	c := old.open().call(abi.Header{Op: abi.OpWindowAddress}, abi.Mapping{Window: abi.Window{Offset: staging, Size: 64}})
	if c.Status != abi.StatusNotSupported {
		t.Errorf("of a guest of version 1.0: %v", c.Status)
	}
}

// TestChosenAddresses checks that memory is where the guest wants it, that launches use it, and that
// the executor knows it as the guest's.
func TestChosenAddresses(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	var place [3]uint64
	for i := range place {
		place[i] = g.must(abi.OpDeviceAttribute, abi.Query{Key: abi.DeviceAddressBase + uint32(i)}).Value[0]
	}
	p := place[0] + place[1] - 64*place[2]
	if v := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096, Address: p}).Value[0]; v != p {
		t.Errorf("allocated at %#x, asked for %#x", v, p)
	}
	if c := g.must(abi.OpMemRange, abi.Handle{Handle: p + 100}); c.Value != [3]uint64{p, 4096} {
		t.Errorf("range %#x", c.Value)
	}
	l, params := launchOf(g.load(incPTX, "inc"), 32, p)
	g.must(abi.OpLaunch, l, params...)
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: p, Size: 128})
	if v := binary.LittleEndian.Uint32(r.shared[staging+124:]); v != 1 {
		t.Errorf("the kernel left %d", v)
	}
	for name, a := range map[string]abi.Alloc{
		"taken":           {Size: 1, Address: p},
		"outside":         {Size: 1, Address: place[0] - place[2]},
		"odd":             {Size: 1, Address: p + 8192 + 1},
		"over the end":    {Size: 64*place[2] + 1, Address: p + 8192},
		"of another kind": {Size: 1, Address: 1 << 63},
	} {
		if s := g.call(abi.Header{Op: abi.OpMemAlloc}, a).Status; s != abi.StatusInvalidAddress {
			t.Errorf("%s: %v", name, s)
		}
	}
	g.must(abi.OpMemFree, abi.Handle{Handle: p})
	if s := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: p}).Status; s != abi.StatusInvalidAddress {
		t.Errorf("free twice: %v", s)
	}
	g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096, Address: p})
}
