package executor

import (
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
)

// TestAllocations compares with a linear search.
func TestAllocations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l allocations
		sizes := map[gpu.Ptr]uint64{}
		// Slots of 16 bytes, so that allocations never overlap.
		slot := rapid.Custom(func(t *rapid.T) gpu.Ptr { return 16 * gpu.Ptr(rapid.IntRange(1, 50).Draw(t, "slot")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := slot.Draw(t, "base")
				if sizes[p] == 0 {
					sizes[p] = rapid.Uint64Range(1, 16).Draw(t, "size")
					l.add(allocation{p, sizes[p]})
				}
			},
			"remove": func(t *rapid.T) {
				p := slot.Draw(t, "base") + gpu.Ptr(rapid.IntRange(0, 1).Draw(t, "within"))
				l.remove(p)
				delete(sizes, p)
			},
			"": func(t *rapid.T) {
				p := gpu.Ptr(rapid.Uint64Range(0, 16*52).Draw(t, "address"))
				var want allocation
				for base, size := range sizes {
					if p >= base && uint64(p-base) < size {
						want = allocation{base, size}
					}
				}
				if got, found := l.around(p); got != want || found != (want.size > 0) || len(l) != len(sizes) {
					t.Fatalf("around %#x: %+v, %v, want %+v", p, got, found, want)
				}
			},
		})
	})
}

// BenchmarkAllocations looks up and changes one of as many allocations as a context of the soft GPU
// may have.
func BenchmarkAllocations(b *testing.B) {
	const most = 1 << 16
	var l allocations
	for i := range most {
		l.add(allocation{gpu.Ptr(1<<40 + 512*i), 256})
	}
	b.Run("look up", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, found := l.around(gpu.Ptr(1<<40 + 512*(i*2654435761%most) + 100)); !found {
				b.Fatal("not found")
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p := gpu.Ptr(1<<40 + 512*(i*2654435761%most))
			l.remove(p)
			l.add(allocation{p, 256})
		}
	})
}
