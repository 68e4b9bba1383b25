package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/gpu/soft/vram"
)

// TestAllocAt checks that kernels and copies use memory at the address that was chosen, and that
// addresses which are taken, or not for programs to choose, are refused.
func TestAllocAt(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	p := &purse{limit: 16 << 20}
	c, err := d.NewContext(t.Context(), gpu.ContextOptions{Budget: p})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := c.(gpu.Placer)
	base, size, grain, err := l.Places()
	if err != nil {
		t.Fatal(err)
	}
	before := p.taken
	at := base + gpu.Ptr(size/2)
	if err := l.AllocAt(at, 1000); err != nil {
		t.Fatal(err)
	}
	if n := p.taken - before; n != 1024 {
		t.Errorf("1000 bytes take %d of the budget", n)
	}
	m, err := c.LoadModule([]byte(doublePTX))
	if err != nil {
		t.Fatal(err)
	}
	fn, err := m.Function("double")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.CopyIn(at+8, binary.LittleEndian.AppendUint64(nil, 21)); err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(at)+992), uint64(at)+8)
	if _, err := ch.Launch(&gpu.Launch{Function: fn, Grid: one, Block: one, Params: params}); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 1000)
	fence, err := ch.CopyOut(out, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Wait(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	if v := binary.LittleEndian.Uint64(out[992:]); v != 42 || ch.Outcome(fence).Err != nil {
		t.Errorf("the kernel stored %d: %v", v, ch.Outcome(fence).Err)
	}
	own, err := c.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]struct {
		p gpu.Ptr
		n uint64
	}{
		"the same":        {at, 1},
		"its end":         {at + 768, 1},
		"across it":       {at - 256, 4096},
		"odd":             {at + 4096 + 128, 1},
		"before the base": {base - gpu.Ptr(grain), 1},
		"behind the end":  {base + gpu.Ptr(size), 1},
		"over the end":    {base + gpu.Ptr(size-grain), grain + 1},
		"the device's":    {own + 4096, 1},
		"far away":        {^gpu.Ptr(grain - 1), 1},
		"over all":        {at + 4096, ^uint64(0)},
	} {
		if err := l.AllocAt(a.p, a.n); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.AllocAt(at+1<<30, 32<<20); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("more than the budget: %v", err)
	}
	if err := c.Free(at + 256); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free in the middle: %v", err)
	}
	if err := c.Free(at); err != nil {
		t.Fatal(err)
	}
	if err := c.Free(at); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free twice: %v", err)
	}
	if err := l.AllocAt(at, 1000); err != nil {
		t.Fatal(err)
	}
	if fence, err = ch.CopyOut(out, at); err != nil {
		t.Fatal(err)
	}
	if err := ch.Wait(t.Context(), fence); err != nil || !bytes.Equal(out, make([]byte, 1000)) {
		t.Errorf("memory is not zero again: %v", err)
	}
}

// TestPlacesProperties checks that, in any order of allocations of both kinds and frees, allocations
// hold what was copied there, the budget holds their sizes, and addresses are refused if and only if
// they are taken.
func TestPlacesProperties(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	rapid.Check(t, func(t *rapid.T) {
		p := &purse{limit: 4 << 20}
		c, err := d.NewContext(t.Context(), gpu.ContextOptions{Budget: p})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		base := p.taken
		ch, err := c.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		live := map[gpu.Ptr][]byte{}
		fill := func(at gpu.Ptr, n uint64) {
			b := rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(t, "bytes")
			live[at] = b
			if _, err := ch.CopyIn(at, b); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.Uint64Range(1, 1000).Draw(t, "size")
				if at, err := c.Alloc(n); err == nil {
					fill(at, n)
				}
			},
			"alloc at": func(t *rapid.T) {
				at := placesBase + gpu.Ptr(rapid.Uint64Range(0, 16).Draw(t, "place"))*vram.Align
				n := rapid.Uint64Range(1, 1000).Draw(t, "size")
				free := true
				for o, b := range live {
					free = free && (at >= o+gpu.Ptr(len(b)) || o >= at+gpu.Ptr(n))
				}
				err := c.(gpu.Placer).AllocAt(at, n)
				if (err == nil) != free {
					t.Fatalf("%d bytes at %#x, free: %v: %v", n, uint64(at), free, err)
				}
				if err == nil {
					fill(at, n)
				}
			},
			"free": func(t *rapid.T) {
				for at := range live {
					if rapid.Bool().Draw(t, "this") {
						if err := c.Free(at); err != nil {
							t.Fatal(err)
						}
						delete(live, at)
						return
					}
				}
			},
			"": func(t *rapid.T) {
				var sum uint64
				for at, want := range live {
					sum += vram.Round(uint64(len(want)))
					got := make([]byte, len(want))
					f, err := ch.CopyOut(got, at)
					if err != nil {
						t.Fatal(err)
					}
					if err := ch.Wait(t.Context(), f); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("at %#x: % x, want % x: %v", uint64(at), got, want, err)
					}
				}
				if got := p.taken - base; got != sum {
					t.Fatalf("%d bytes are counted, want %d", got, sum)
				}
			},
		})
	})
}

// A module's variables are at the address that was chosen, on any GPU; it can't be where something is.
func TestLoadModuleAt(t *testing.T) {
	const source = ".version 8.0\n.target sm_80\n.address_size 64\n.const .u32 c = 5;\n.global .u32 v = 7;\n.global .u64 where = v;\n.visible .entry k() { ret; }"
	for _, other := range []int{0, 1} {
		d := newDevice(t, Options{Priority: -1})
		for range other {
			o, err := d.NewContext(t.Context(), gpu.ContextOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
		}
		c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l := c.(gpu.Movable)
		base, size, _, err := l.Places()
		if err != nil {
			t.Fatal(err)
		}
		at := base + gpu.Ptr(size/4)
		m, err := l.LoadModuleAt([]byte(source), at)
		if err != nil {
			t.Fatal(err)
		}
		p, n := m.(gpu.Variables).Variables()
		v, _, err := m.Global("v")
		if err != nil || p != at || v < at || v >= at+gpu.Ptr(n) {
			t.Fatalf("variables at %#x, v at %#x, want %#x: %v", p, v, at, err)
		}
		ch, err := c.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		all := make([]byte, n)
		fence, err := ch.CopyOut(all, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Wait(t.Context(), fence); err != nil {
			t.Fatal(err)
		}
		if where := binary.LittleEndian.AppendUint64(nil, uint64(v)); !bytes.Contains(all, where) {
			t.Errorf("no variable has %#x: % x", v, all)
		}
		for name, p := range map[string]gpu.Ptr{"the same": at, "not a place": base - 256, "odd": at + 1<<30 + 8} {
			if _, err := l.LoadModuleAt([]byte(source), p); !errors.Is(err, gpu.ErrInvalidPtr) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := m.Unload(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.LoadModuleAt([]byte(source), at); err != nil {
			t.Errorf("where one was unloaded: %v", err)
		}
		if err := l.Stays(); err != nil {
			t.Errorf("a context without a heap stays: %v", err)
		}
	}
}
