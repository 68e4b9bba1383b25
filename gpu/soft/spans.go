package soft

import (
	"slices"
	"sort"

	"vgpud/gpu"
)

// span is a range of memory that copies may touch.
type span struct {
	p gpu.Ptr
	n uint64
}

// spanList is spans by address, none overlapping another.
type spanList []span

func (l *spanList) insert(s span) {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].p >= s.p })
	*l = slices.Insert(*l, i, s)
}

// remove takes out the span that begins at p and returns it, or one of no size.
func (l *spanList) remove(p gpu.Ptr) span {
	i := sort.Search(len(*l), func(i int) bool { return (*l)[i].p >= p })
	if i == len(*l) || (*l)[i].p != p {
		return span{}
	}
	s := (*l)[i]
	*l = slices.Delete(*l, i, i+1)
	return s
}

// contains reports whether the n bytes at p are in one span.
func (l spanList) contains(p gpu.Ptr, n uint64) bool {
	i := sort.Search(len(l), func(i int) bool { return l[i].p > p })
	if i == 0 {
		return false
	}
	s := l[i-1]
	off := uint64(p - s.p)
	return off < s.n && n <= s.n-off
}
