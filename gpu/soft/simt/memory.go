package simt

import (
	"fmt"
	"slices"
	"sort"
)

// The windows of the generic address space. Global memory may be mapped below
// GlobalLimit only.
const (
	GlobalLimit uint64 = 0x7000_0000_0000

	sharedWindow uint64 = 0x7000_0000_0000
	localWindow  uint64 = 0x7100_0000_0000
	paramWindow  uint64 = 0x7200_0000_0000
	codeWindow   uint64 = 0x7300_0000_0000
	windowSize   uint64 = 0x0100_0000_0000

	codeStride = 16 // bytes between the addresses of two functions
)

// Memory is the global memory of a context: address ranges, each backed by
// bytes of the caller's. What is not mapped faults when a kernel touches it, so
// map exactly what is allocated. The zero Memory is empty and ready for use.
//
// Mapping and unmapping is allowed between two steps of the grids that use the
// memory, not during one.
type Memory struct {
	spans []span // by address, none overlapping another
	epoch uint32 // counts changes; caches of spans compare it
	heap  deviceHeap
	idle  idleBlocks
}

// span is one mapped range.
type span struct {
	lo       uint64
	data     []byte
	readOnly bool // constant variables
}

func (s *span) end() uint64 { return s.lo + uint64(len(s.data)) }

// Map makes data appear at addr. It fails for an empty range, for one that
// reaches beyond [GlobalLimit] or includes address 0, and for one that overlaps
// another. The memory keeps data until it is unmapped.
func (m *Memory) Map(addr uint64, data []byte) error {
	return m.insert(span{lo: addr, data: data})
}

func (m *Memory) insert(s span) error {
	n := uint64(len(s.data))
	if n == 0 || s.lo == 0 || s.lo >= GlobalLimit || n > GlobalLimit-s.lo {
		return fmt.Errorf("map %d bytes at %#x: not a range of global memory", n, s.lo)
	}
	i := m.search(s.lo)
	if i > 0 && m.spans[i-1].end() > s.lo || i < len(m.spans) && m.spans[i].lo < s.end() {
		return fmt.Errorf("map %d bytes at %#x: overlaps what is mapped", n, s.lo)
	}
	m.spans = slices.Insert(m.spans, i, s)
	m.epoch++
	return nil
}

// Unmap takes back what Map mapped at addr.
func (m *Memory) Unmap(addr uint64) error {
	i := m.search(addr)
	if i == 0 || m.spans[i-1].lo != addr {
		return fmt.Errorf("unmap %#x: nothing is mapped there", addr)
	}
	m.spans = slices.Delete(m.spans, i-1, i)
	m.epoch++
	return nil
}

// Bytes returns the n bytes at addr, which alias the memory; false unless all
// of them lie in one mapped range.
func (m *Memory) Bytes(addr, n uint64) ([]byte, bool) {
	s := m.find(addr)
	if s == nil {
		return nil, false
	}
	off := addr - s.lo
	if n > uint64(len(s.data))-off {
		return nil, false
	}
	return s.data[off : off+n : off+n], true
}

// search returns how many spans start at addr or below.
func (m *Memory) search(addr uint64) int {
	return sort.Search(len(m.spans), func(i int) bool { return m.spans[i].lo > addr })
}

// find returns the span that holds addr, or nil.
func (m *Memory) find(addr uint64) *span {
	if i := m.search(addr); i > 0 && addr < m.spans[i-1].end() {
		return &m.spans[i-1]
	}
	return nil
}

// deviceHeap is what device-side malloc takes from. Memory that a kernel frees is not
// used again: kernels that allocate for themselves are rare.
type deviceHeap struct{ next, end uint64 }

// SetHeap gives device-side malloc a mapped range to take from, once. Without
// one malloc returns a null pointer.
func (m *Memory) SetHeap(addr, size uint64) { m.heap = deviceHeap{addr, addr + size} }

const heapAlign = 16

// heapAlloc returns the address of size bytes of the heap, 0 if there are not
// that many.
func (m *Memory) heapAlloc(size uint64) uint64 {
	at := alignUp(m.heap.next, heapAlign)
	if size == 0 || at > m.heap.end || size > m.heap.end-at {
		return 0
	}
	m.heap.next = at + size
	return at
}
