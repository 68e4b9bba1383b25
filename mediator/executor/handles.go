package executor

import "vgpud/mediator/vgpu/abi"

// handles is a table of objects that the guest names by number. Numbers are not reused, so that a
// stale one is noticed.
type handles[T any] struct {
	byID map[uint64]T
	last uint64
	max  int
}

func newHandles[T any](max int) handles[T] {
	return handles[T]{byID: make(map[uint64]T), max: max}
}

// add stores v and returns its number, or [abi.StatusTooMany].
func (h *handles[T]) add(v T) (uint64, error) {
	if len(h.byID) >= h.max {
		return 0, abi.StatusTooMany
	}
	h.last++
	h.byID[h.last] = v
	return h.last, nil
}

// get returns the object with a number, or [abi.StatusInvalidHandle].
func (h *handles[T]) get(id uint64) (T, error) {
	v, ok := h.byID[id]
	if !ok {
		return v, abi.StatusInvalidHandle
	}
	return v, nil
}

// take removes the object with a number and returns it.
func (h *handles[T]) take(id uint64) (T, error) {
	v, err := h.get(id)
	if err == nil {
		delete(h.byID, id)
	}
	return v, err
}
