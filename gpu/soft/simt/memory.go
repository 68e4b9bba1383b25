package simt

import (
	"fmt"
	"slices"
	"sort"
)

// The windows of the generic address space. Global memory may only be mapped below GlobalLimit.
const (
	GlobalLimit uint64 = 0x7000_0000_0000

	sharedWindow uint64 = 0x7000_0000_0000
	localWindow  uint64 = 0x7100_0000_0000
	paramWindow  uint64 = 0x7200_0000_0000
	codeWindow   uint64 = 0x7300_0000_0000
	windowSize   uint64 = 0x0100_0000_0000

	codeStride = 16 // distance between the addresses of two functions
)

// Memory is the global memory of a context: address ranges that are each backed by bytes of the
// caller. Unmapped addresses fault when a kernel accesses them, so map exactly what is allocated.
// The zero Memory is empty and ready for use.
//
// Map and Unmap may be called between two steps of the grids that use the memory, not during one.
type Memory struct {
	mappings []mapping // by address, disjoint
	epoch    uint32    // counts changes, to invalidate cached mappings
	heap     deviceHeap
	idle     idleBlocks
	textures textureTable
}

// mapping is one mapped range.
type mapping struct {
	lo       uint64
	data     []byte
	readOnly bool // constant variables
}

func (s *mapping) end() uint64 { return s.lo + uint64(len(s.data)) }

// Map maps data at addr. It fails for an empty range, for one that exceeds [GlobalLimit] or
// includes address 0, and for one that overlaps another. The memory refers to data until it is
// unmapped.
func (m *Memory) Map(addr uint64, data []byte) error {
	return m.insert(mapping{lo: addr, data: data})
}

func (m *Memory) insert(s mapping) error {
	n := uint64(len(s.data))
	if n == 0 || s.lo == 0 || s.lo >= GlobalLimit || n > GlobalLimit-s.lo {
		return fmt.Errorf("map %d bytes at %#x: not a range of global memory", n, s.lo)
	}
	i := m.search(s.lo)
	if i > 0 && m.mappings[i-1].end() > s.lo || i < len(m.mappings) && m.mappings[i].lo < s.end() {
		return fmt.Errorf("map %d bytes at %#x: overlaps what is mapped", n, s.lo)
	}
	m.mappings = slices.Insert(m.mappings, i, s)
	m.epoch++
	return nil
}

// Unmap undoes the Map at addr.
func (m *Memory) Unmap(addr uint64) error {
	i := m.search(addr)
	if i == 0 || m.mappings[i-1].lo != addr {
		return fmt.Errorf("unmap %#x: nothing is mapped there", addr)
	}
	m.mappings = slices.Delete(m.mappings, i-1, i)
	m.epoch++
	return nil
}

// Bytes returns the n bytes at addr, which alias the memory. It returns false unless all of them
// are in one mapping.
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

// search returns the number of mappings that start at addr or below.
func (m *Memory) search(addr uint64) int {
	return sort.Search(len(m.mappings), func(i int) bool { return m.mappings[i].lo > addr })
}

// find returns the mapping that contains addr, or nil.
func (m *Memory) find(addr uint64) *mapping {
	if i := m.search(addr); i > 0 && addr < m.mappings[i-1].end() {
		return &m.mappings[i-1]
	}
	return nil
}
