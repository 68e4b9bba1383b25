package cuda

import "unsafe"

// Thread is struct vgpu_thread of the C part: a thread's stack of current contexts.
type Thread struct {
	ID       uint32 // from 1
	Depth    uint32
	Capacity uint32 // at least Depth+1 during a call
	_        uint32
	Stack    *Handle
}

// NewThread returns a thread without a C part, for Go programs and tests, whose stack has room for
// capacity contexts.
func NewThread(id, capacity uint32) *Thread {
	return &Thread{ID: id, Capacity: capacity, Stack: unsafe.SliceData(make([]Handle, capacity))}
}

func (t *Thread) stack() []Handle { return unsafe.Slice(t.Stack, t.Capacity) }

// current returns the handle of the thread's current context, or 0.
func (t *Thread) current() Handle {
	if t.Depth == 0 {
		return 0
	}
	return t.stack()[t.Depth-1]
}

// setCurrent replaces the top of the stack; 0 removes it.
func (t *Thread) setCurrent(h Handle) {
	switch {
	case h == 0 && t.Depth > 0:
		t.Depth--
	case h == 0:
	case t.Depth == 0:
		t.push(h)
	default:
		t.stack()[t.Depth-1] = h
	}
}

// push reports whether there was room.
func (t *Thread) push(h Handle) bool {
	if t.Depth >= t.Capacity {
		return false
	}
	t.Depth++
	t.stack()[t.Depth-1] = h
	return true
}

// Call calls a function by its number; words are its arguments.
func (d *Driver) Call(function uint32, t *Thread, args unsafe.Pointer) Result {
	c := d.thread(t)
	c.perThread = function&perThreadForm != 0
	function &^= perThreadForm
	if function >= uint32(len(calls)) || calls[function] == nil {
		return ErrorNotSupported
	}
	if x := d.unbegun.Load(); x != nil && !recorded[function] {
		x.task.hint(function, (*words)(args))
		return c.beginTask(x, func() Result { return calls[function](c, (*words)(args)) })
	}
	return calls[function](c, (*words)(args))
}

// perThreadForm is set in a function's number for the form whose default stream is the thread's.
const perThreadForm = 1 << 31
