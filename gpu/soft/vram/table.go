package vram

import (
	"errors"
	"fmt"
	"sort"
)

// Align is the alignment of every allocation's offset and size, as CUDA promises.
const Align = 256

// Errors of a table.
var (
	// ErrFull means that no free range is large enough, or that too many allocations exist.
	ErrFull = errors.New("no room")
	// ErrUnknown means that an offset is not the start of an allocation.
	ErrUnknown = errors.New("not an allocation")
)

// Range is a part of the address space, in bytes from its start.
type Range struct{ Offset, Size uint64 }

// Table is the state of an address space. Use New to create one.
type Table struct {
	size  uint64
	max   int
	used  uint64
	taken []Range // by offset
	free  []Range // by offset, no two adjacent
}

// New returns a table of size bytes for at most max allocations at a time.
func New(size uint64, max int) *Table {
	size &^= Align - 1
	t := &Table{size: size, max: max}
	if size > 0 {
		t.free = []Range{{0, size}}
	}
	return t
}

// Size returns the number of bytes in the address space.
func (t *Table) Size() uint64 { return t.size }

// Used returns the number of allocated bytes, with sizes rounded up to [Align].
func (t *Table) Used() uint64 { return t.used }

// Round returns the size that an allocation of n bytes occupies, or 0 if it is impossible.
func Round(n uint64) uint64 {
	if n > 1<<62 {
		return 0
	}
	return (n + Align - 1) &^ (Align - 1)
}

// Alloc allocates the lowest range that is large enough.
func (t *Table) Alloc(n uint64) (Range, error) {
	size := Round(n)
	if size == 0 {
		return Range{}, fmt.Errorf("allocate %d bytes: %w", n, ErrFull)
	}
	if len(t.taken) >= t.max {
		return Range{}, fmt.Errorf("allocate %d bytes beside %d allocations: %w", n, len(t.taken), ErrFull)
	}
	for i := range t.free {
		f := &t.free[i]
		if f.Size < size {
			continue
		}
		r := Range{f.Offset, size}
		if f.Size == size {
			t.free = append(t.free[:i], t.free[i+1:]...)
		} else {
			f.Offset += size
			f.Size -= size
		}
		t.insert(&t.taken, r)
		t.used += size
		return r, nil
	}
	return Range{}, fmt.Errorf("allocate %d bytes with %d of %d free: %w", n, t.size-t.used, t.size, ErrFull)
}

// Free frees the allocation that starts at offset.
func (t *Table) Free(offset uint64) (Range, error) {
	i := at(t.taken, offset)
	if i == len(t.taken) || t.taken[i].Offset != offset {
		return Range{}, fmt.Errorf("free offset %#x: %w", offset, ErrUnknown)
	}
	r := t.taken[i]
	t.taken = append(t.taken[:i], t.taken[i+1:]...)
	t.used -= r.Size
	t.release(r)
	return r, nil
}

// release adds r to the free ranges and merges it with its neighbours.
func (t *Table) release(r Range) {
	i := at(t.free, r.Offset)
	if i < len(t.free) && r.Offset+r.Size == t.free[i].Offset {
		t.free[i].Offset = r.Offset
		t.free[i].Size += r.Size
	} else {
		t.insert(&t.free, r)
	}
	if i > 0 && t.free[i-1].Offset+t.free[i-1].Size == t.free[i].Offset {
		t.free[i-1].Size += t.free[i].Size
		t.free = append(t.free[:i], t.free[i+1:]...)
	}
}

// Hole returns the free range that contains offset, or an empty one if it is allocated.
func (t *Table) Hole(offset uint64) Range {
	i := sort.Search(len(t.free), func(i int) bool { return t.free[i].Offset > offset })
	if i == 0 || offset-t.free[i-1].Offset >= t.free[i-1].Size {
		return Range{}
	}
	return t.free[i-1]
}

// Contains reports whether the n bytes at offset are in one allocation.
func (t *Table) Contains(offset, n uint64) bool {
	i := sort.Search(len(t.taken), func(i int) bool { return t.taken[i].Offset > offset })
	if i == 0 {
		return false
	}
	r := t.taken[i-1]
	return offset-r.Offset < r.Size && n <= r.Size-(offset-r.Offset)
}

// All returns the allocations in order of their offsets. The caller must not change them, nor keep
// them across changes.
func (t *Table) All() []Range { return t.taken }

// at returns the index in ranges where offset is or belongs.
func at(ranges []Range, offset uint64) int {
	return sort.Search(len(ranges), func(i int) bool { return ranges[i].Offset >= offset })
}

func (t *Table) insert(to *[]Range, r Range) {
	i := at(*to, r.Offset)
	*to = append(*to, Range{})
	copy((*to)[i+1:], (*to)[i:])
	(*to)[i] = r
}
