package vram

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestAllocRefuses(t *testing.T) {
	table := New(1024, 3)
	for _, n := range []uint64{0, 1025, math.MaxUint64, math.MaxUint64 - 200} {
		if r, err := table.Alloc(n); !errors.Is(err, ErrFull) {
			t.Errorf("allocated %d bytes at %+v, error %v", n, r, err)
		}
	}
	for range 3 {
		if _, err := table.Alloc(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.Alloc(1); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth of three allocations: %v", err)
	}
	if _, err := table.Free(1); !errors.Is(err, ErrUnknown) {
		t.Errorf("free in the middle: %v", err)
	}
	if table.Contains(0, 257) || !table.Contains(255, 1) || table.Contains(768, 1) || table.Contains(255, math.MaxUint64) {
		t.Error("Contains is wrong at an allocation's end")
	}
}

// Allocations never overlap, freed memory can be allocated again as a whole, and the sums are
// correct.
func TestTableProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size, max = 64 * Align, 20
		table := New(size, max)
		live := map[uint64]uint64{}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.Uint64Range(1, 20*Align).Draw(t, "bytes")
				r, err := table.Alloc(n)
				if err != nil {
					return
				}
				if r.Size < n || r.Offset%Align != 0 || r.Offset+r.Size > size {
					t.Fatalf("asked for %d bytes, got %+v", n, r)
				}
				for o, s := range live {
					if r.Offset < o+s && o < r.Offset+r.Size {
						t.Fatalf("%+v overlaps %d+%d", r, o, s)
					}
				}
				live[r.Offset] = r.Size
			},
			"free": func(t *rapid.T) {
				o := rapid.Uint64Range(0, 63).Draw(t, "offset") * Align
				r, err := table.Free(o)
				if s, ok := live[o]; ok != (err == nil) || s != r.Size {
					t.Fatalf("free %d: %+v, %v; allocated: %v", o, r, err, ok)
				}
				delete(live, o)
			},
			"": func(t *rapid.T) {
				var used uint64
				for _, s := range live {
					used += s
				}
				if table.Used() != used || len(table.All()) != len(live) {
					t.Fatalf("%d bytes in %d allocations, want %d in %d", table.Used(), len(table.All()), used, len(live))
				}
				for o, s := range live {
					if !table.Contains(o, s) || table.Contains(o, s+1) && live[o+s] == 0 {
						t.Fatalf("Contains is wrong about %d+%d", o, s)
					}
					if h := table.Hole(o + s - 1); h != (Range{}) {
						t.Fatalf("%d+%d is in hole %+v", o, s, h)
					}
				}
				free, next := uint64(0), uint64(0)
				for o := uint64(0); o < size; o += Align {
					h := table.Hole(o)
					if o < next || h.Size == 0 {
						continue
					}
					if h.Offset != o || o > 0 && o == next && free > 0 {
						t.Fatalf("hole %+v around %d, after one that ends at %d", h, o, next)
					}
					free, next = free+h.Size, o+h.Size
				}
				if free != size-used {
					t.Fatalf("holes of %d bytes, want %d", free, size-used)
				}
			},
		})
		for o := range live {
			if _, err := table.Free(o); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := table.Alloc(size); err != nil || r.Size != size {
			t.Fatalf("all is free, but not one range: %v", err)
		}
	})
}
