package simt

import (
	"math/rand/v2"
	"testing"
)

// Random allocations and frees: none overlaps another or leaves the heap, and in the end all of it
// can be allocated at once again.
func TestHeap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var m Memory
		const base, size = 0x1000, 1 << 16
		m.SetHeap(base, size)
		held := map[uint64]uint64{}
		owner := make([]uint64, size)
		for range 3000 {
			if rng.IntN(5) < 3 {
				n := 1 + rng.Uint64N(1<<(1+rng.IntN(12)))
				p := m.heapAlloc(n)
				if p == 0 {
					continue
				}
				if p%heapAlign != 0 || p < base || p+n > base+size {
					t.Fatalf("%d bytes at %#x", n, p)
				}
				for i := p - base; i < p-base+n; i++ {
					if owner[i] != 0 {
						t.Fatalf("%d bytes at %#x overlap those at %#x", n, p, owner[i])
					}
					owner[i] = p
				}
				held[p] = n
				continue
			}
			for p, n := range held {
				m.heapFree(p)
				m.heapFree(p) // does nothing
				clear(owner[p-base : p-base+n])
				delete(held, p)
				break
			}
		}
		for p := range held {
			m.heapFree(p)
		}
		if m.heapAlloc(size) != base {
			t.Fatal("the heap is in pieces though all was freed")
		}
		if m.heapAlloc(1) != 0 {
			t.Error("memory beside all of it")
		}
	}
}

// The books of a heap don't grow with the calls.
func TestHeapBooks(t *testing.T) {
	var m Memory
	m.SetHeap(0x1000, 960) // no power of two
	for range 100000 {
		p := m.heapAlloc(24)
		if p == 0 {
			t.Fatal("no memory")
		}
		m.heapFree(p)
	}
	for o := range m.heap.stacks {
		if n := len(m.heap.stacks[o].list); n > 4*heapOrders {
			t.Errorf("%d entries of order %d", n, o)
		}
	}
	if m.heapAlloc(961) != 0 || m.heapAlloc(0) != 0 || m.heapAlloc(1<<63) != 0 {
		t.Error("memory that there is not")
	}
	var none Memory
	none.heapFree(5)
	if none.heapAlloc(1) != 0 {
		t.Error("memory without a heap")
	}
}
