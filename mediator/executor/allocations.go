package executor

import (
	"cmp"
	"slices"

	"vgpud/gpu"
)

// allocation is memory that the guest allocated.
type allocation struct {
	base gpu.Ptr
	size uint64 // bytes
}

// allocations are ordered by address, and none overlaps another.
type allocations []allocation

func (l allocations) search(p gpu.Ptr) (i int, found bool) {
	return slices.BinarySearchFunc(l, p, func(a allocation, p gpu.Ptr) int { return cmp.Compare(a.base, p) })
}

// add adds memory that was allocated.
func (l *allocations) add(a allocation) {
	i, _ := l.search(a.base)
	*l = slices.Insert(*l, i, a)
}

// remove removes the allocation that begins at p.
func (l *allocations) remove(p gpu.Ptr) {
	if i, found := l.search(p); found {
		*l = slices.Delete(*l, i, i+1)
	}
}

// around returns the allocation that p lies in.
func (l allocations) around(p gpu.Ptr) (a allocation, found bool) {
	i, found := l.search(p)
	if found {
		return l[i], true
	}
	if i == 0 || uint64(p-l[i-1].base) >= l[i-1].size {
		return allocation{}, false
	}
	return l[i-1], true
}
