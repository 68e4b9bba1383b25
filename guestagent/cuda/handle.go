package cuda

import (
	"sync"
	"sync/atomic"
)

// Handle is what a program has of an object: a CUcontext, CUmodule, CUstream and so on. It is no
// pointer. From the low bits: the slot, how often the slot was used, and the constant 1<<42.
type Handle uint64

const (
	slotBits  = 22
	usesBits  = 20
	handleBit = 1 << (slotBits + usesBits)
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

// object is what a handle names.
type object struct {
	handle Handle
	value  any
}

// objects is the table of all objects. Reading takes no lock.
type objects struct {
	chunks [1 << (slotBits - chunkBits)]atomic.Pointer[chunk]

	mu   sync.Mutex
	used uint32 // slots that were used so far
	free []uint32
}

type chunk struct {
	objects [chunkSize]atomic.Pointer[object]
	uses    [chunkSize]uint32 // guarded by objects.mu
}

// add makes a handle for a value, or returns 0 if there are too many.
func (o *objects) add(value any) Handle {
	o.mu.Lock()
	defer o.mu.Unlock()
	var slot uint32
	if n := len(o.free); n > 0 {
		slot, o.free = o.free[n-1], o.free[:n-1]
	} else if o.used < 1<<slotBits {
		slot = o.used
		o.used++
	} else {
		return 0
	}
	at := &o.chunks[slot>>chunkBits]
	c := at.Load()
	if c == nil {
		c = new(chunk)
		at.Store(c)
	}
	uses := &c.uses[slot%chunkSize]
	*uses = (*uses + 1) % (1 << usesBits)
	h := Handle(handleBit | uint64(*uses)<<slotBits | uint64(slot))
	c.objects[slot%chunkSize].Store(&object{h, value})
	return h
}

// place returns where a handle's object is, or nil.
func (o *objects) place(h Handle) *atomic.Pointer[object] {
	if h>>(slotBits+usesBits) != 1 {
		return nil
	}
	slot := uint32(h) & (1<<slotBits - 1)
	c := o.chunks[slot>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return &c.objects[slot%chunkSize]
}

// remove makes a handle invalid. It reports whether it was valid.
func (o *objects) remove(h Handle) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.place(h)
	if at == nil {
		return false
	}
	if e := at.Load(); e == nil || e.handle != h {
		return false
	}
	at.Store(nil)
	o.free = append(o.free, uint32(h)&(1<<slotBits-1))
	return true
}

// get returns the object of type T that a handle names, or nil.
func get[T any](o *objects, h Handle) *T {
	at := o.place(h)
	if at == nil {
		return nil
	}
	e := at.Load()
	if e == nil || e.handle != h {
		return nil
	}
	v, _ := e.value.(*T)
	return v
}
