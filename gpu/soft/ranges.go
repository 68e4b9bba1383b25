package soft

import (
	"slices"
	"sort"

	"vgpud/gpu"
)

// memRange is a range of memory that copies may touch.
type memRange struct {
	p    gpu.Ptr
	n    uint64
	data []byte // its bytes in this process
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

// bytes returns the n bytes at p, if they are in one range.
func (l rangeList) bytes(p gpu.Ptr, n uint64) (data []byte, ok bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i].p > p })
	if i == 0 {
		return nil, false
	}
	s := l[i-1]
	off := uint64(p - s.p)
	if off >= s.n || n > s.n-off {
		return nil, false
	}
	return s.data[off : off+n : off+n], true
}
