package ptx

// slab allocates values of T in chunks, so that a tree of a million nodes takes a thousand
// allocations. A chunk lives as long as any value in it.
type slab[T any] struct {
	free []T
	size int // of the last chunk
}

const (
	firstChunk = 16
	chunkLimit = 512
)

// grow replaces the current chunk with one of at least n free values.
func (s *slab[T]) grow(n int) {
	s.size = min(max(2*s.size, firstChunk), chunkLimit)
	s.free = make([]T, max(s.size, n))
}

// one allocates a zero value.
func (s *slab[T]) one() *T {
	if len(s.free) == 0 {
		s.grow(1)
	}
	p := &s.free[0]
	s.free = s.free[1:]
	return p
}

// keep returns a copy of xs; appending to it reallocates. It returns nil if xs is empty.
func (s *slab[T]) keep(xs []T) []T {
	if len(xs) == 0 {
		return nil
	}
	if len(s.free) < len(xs) {
		s.grow(len(xs))
	}
	out := s.free[:len(xs):len(xs)]
	s.free = s.free[len(xs):]
	copy(out, xs)
	return out
}
