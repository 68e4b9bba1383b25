package simt

import "math/bits"

// deviceHeap is the memory of device-side malloc and free: a buddy allocator. Its books are outside
// the GPU's memory, so a kernel can't damage them, and every call takes a bounded time.
type deviceHeap struct {
	base   uint64
	size   uint64
	used   map[uint64]uint8    // the order of each allocation, by its offset
	free   map[uint64]uint8    // the order of each free block, by its offset
	stacks [heapOrders]offsets // free blocks by order, and some that are free no longer
}

// offsets is a stack of blocks, of which count are free.
type offsets struct {
	list  []uint64
	count int
}

const (
	heapAlign      = 16 // bytes of a block of order 0
	heapOrders     = 40
	maxHeapObjects = 1 << 18 // allocations at a time
)

// SetHeap gives device-side malloc a mapped range, once. Without a heap malloc returns a null
// pointer.
func (m *Memory) SetHeap(addr, size uint64) {
	h := &m.heap
	*h = deviceHeap{base: addr, size: size &^ (heapAlign - 1), used: map[uint64]uint8{}, free: map[uint64]uint8{}}
	for at := uint64(0); at < h.size; {
		// The largest block that is aligned to its size and fits.
		order := heapOrders - 1
		for at&(blockBytes(order)-1) != 0 || blockBytes(order) > h.size-at {
			order--
		}
		h.put(at, order)
		at += blockBytes(order)
	}
}

func blockBytes(order int) uint64 { return heapAlign << order }

// put adds a free block.
func (h *deviceHeap) put(at uint64, order int) {
	h.free[at] = uint8(order)
	s := &h.stacks[order]
	s.list = append(s.list, at)
	if s.count++; len(s.list) > 2*s.count+heapOrders {
		h.compact(order)
	}
}

// compact removes from a stack what is free no longer, and what is there twice.
func (h *deviceHeap) compact(order int) {
	s := &h.stacks[order]
	seen := make(map[uint64]bool, s.count)
	keep := s.list[:0]
	for _, at := range s.list {
		if o, free := h.free[at]; free && int(o) == order && !seen[at] {
			seen[at] = true
			keep = append(keep, at)
		}
	}
	s.list = keep
}

// take removes a free block of an order and returns it, or false if there is none.
func (h *deviceHeap) take(order int) (uint64, bool) {
	s := &h.stacks[order]
	for s.count > 0 && len(s.list) > 0 {
		at := s.list[len(s.list)-1]
		s.list = s.list[:len(s.list)-1]
		if o, free := h.free[at]; free && int(o) == order {
			delete(h.free, at)
			s.count--
			return at, true
		}
	}
	return 0, false
}

// heapAlloc allocates size bytes of the heap, and returns 0 if they don't fit.
func (m *Memory) heapAlloc(size uint64) uint64 {
	h := &m.heap
	if size == 0 || size > h.size || len(h.used) >= maxHeapObjects {
		return 0
	}
	order := bits.Len64((size - 1) / heapAlign)
	for from := order; from < heapOrders; from++ {
		at, ok := h.take(from)
		if !ok {
			continue
		}
		for o := from - 1; o >= order; o-- { // the upper halves stay free
			h.put(at+blockBytes(o), o)
		}
		h.used[at] = uint8(order)
		return h.base + at
	}
	return 0
}

// heapFree frees what heapAlloc returned. Other addresses do nothing; CUDA leaves them undefined.
func (m *Memory) heapFree(addr uint64) {
	h := &m.heap
	at := addr - h.base
	o, ok := h.used[at]
	if !ok {
		return
	}
	delete(h.used, at)
	order := int(o)
	for order+1 < heapOrders {
		buddy := at ^ blockBytes(order)
		if b, free := h.free[buddy]; !free || int(b) != order {
			break
		}
		delete(h.free, buddy)
		h.stacks[order].count--
		at &^= blockBytes(order)
		order++
	}
	h.put(at, order)
}
