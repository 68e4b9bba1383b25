package simt

import (
	"vgpud/ptx"
)

// layout places variables one after the other.
type layout struct {
	size uint64
	at   map[*ptx.Var]uint64
}

// add places a variable of the given size.
func (l *layout) add(v *ptx.Var, size uint64) uint64 {
	if l.at == nil {
		l.at = map[*ptx.Var]uint64{}
	}
	l.size = alignUp(l.size, uint64(max(v.Alignment(), 1)))
	at := l.size
	l.at[v] = at
	l.size += size
	return at
}

func alignUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

// sizeOf returns a variable's size in bytes, and false if it exceeds the limit.
func sizeOf(v *ptx.Var, limit uint64) (uint64, bool) {
	n := v.Len()
	if n < 0 || uint64(n) > limit {
		return 0, false
	}
	size := uint64(n) * uint64(max(v.Type.Size(), 1))
	return size, size <= limit
}
