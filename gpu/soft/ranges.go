package soft

import (
	"slices"
	"sort"

	"vgpud/gpu"
)

// memRange is a range of memory that copies may touch.
type memRange struct {
	p gpu.Ptr
	n uint64
}

// rangeList holds disjoint ranges in order of their addresses.
type rangeList []memRange

func (l *rangeList) insert(s memRange) {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].p >= s.p })
	*l = slices.Insert(*l, i, s)
}

// remove removes the range that begins at p and returns it, or an empty one.
func (l *rangeList) remove(p gpu.Ptr) memRange {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].p >= p })
	if i == len(*l) || (*l)[i].p != p {
		return memRange{}
	}
	s := (*l)[i]
	*l = slices.Delete(*l, i, i+1)
	return s
}

// contains reports whether the n bytes at p are in one range.
func (l rangeList) contains(p gpu.Ptr, n uint64) bool {
	i := sort.Search(len(l), func(i int) bool { return l[i].p > p })
	if i == 0 {
		return false
	}
	s := l[i-1]
	off := uint64(p - s.p)
	return off < s.n && n <= s.n-off
}
