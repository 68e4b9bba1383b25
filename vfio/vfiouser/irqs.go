package vfiouser

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// maxVectors is the maximum for MSI-X.
const maxVectors = 2048

// irqTable holds the eventfds of a client for the device's interrupts. mu guards the vectors'
// events, masks and pending bits.
type irqTable struct {
	mu    sync.Mutex
	index [NumIRQs]irq

	maskers  int // set by the client, at most maxMaskers; owned by set and close
	watching sync.WaitGroup
}

type irq struct {
	flags   uint32
	vectors []vector
}

// vector is one interrupt vector. A trigger while it is masked stays pending until it is unmasked.
type vector struct {
	event   *event
	masked  bool
	pending bool
	// maskers are the eventfds with which the client unmasks [0] and masks [1] the vector; owned by
	// set and close.
	maskers [2]*masker
}

// event is a client's eventfd. It is closed when its last user is done, so that a goroutine that is
// about to signal it never writes to a descriptor that has been closed and reused.
type event struct {
	fd   int
	refs atomic.Int32
}

func newEvent(fd int) *event {
	e := &event{fd: fd}
	e.refs.Store(1)
	return e
}

func (e *event) release() {
	if e != nil && e.refs.Add(-1) == 0 {
		closeFDs([]int{e.fd})
	}
}

func newIRQTable(irqs []IRQ) *irqTable {
	t := &irqTable{}
	for i, q := range irqs {
		t.index[i] = irq{flags: q.Flags | IRQFlagEventfd, vectors: make([]vector, q.Count)}
	}
	return t
}

// info answers DEVICE_GET_IRQ_INFO.
func (t *irqTable) info(index uint32) (IRQInfo, error) {
	if index >= NumIRQs {
		return IRQInfo{}, syscall.EINVAL
	}
	q := &t.index[index]
	return IRQInfo{Argsz: SizeofIRQInfo, Flags: q.flags | IRQFlagEventfd, Index: index, Count: uint32(len(q.vectors))}, nil
}

// trigger signals a vector. It reports whether the client has set an eventfd, also if the vector is
// masked.
func (t *irqTable) trigger(index, vec uint32) bool {
	t.mu.Lock()
	if index >= NumIRQs || int64(vec) >= int64(len(t.index[index].vectors)) {
		t.mu.Unlock()
		return false
	}
	q := &t.index[index]
	v := &q.vectors[vec]
	e := v.event
	if e == nil {
		t.mu.Unlock()
		return false
	}
	if v.masked {
		v.pending = true
		t.mu.Unlock()
		return true
	}
	if q.flags&IRQFlagAutomasked != 0 {
		v.masked = true
	}
	e.refs.Add(1)
	t.mu.Unlock()
	e.signal()
	e.release()
	return true
}

// set carries out DEVICE_SET_IRQS. s is the decoded struct, data follows it in the message.
func (t *irqTable) set(s *IRQSet, data []byte, m *message) error {
	if s.Index >= NumIRQs {
		return syscall.EINVAL
	}
	q := &t.index[s.Index]
	n := uint32(len(q.vectors))
	if s.Start > n || s.Count > n-s.Start || (s.Start == n && s.Count != 0) {
		return syscall.EINVAL
	}
	form, action := s.Flags&irqSetDataMask, s.Flags&irqSetActionMask
	if s.Flags&^uint32(irqSetDataMask|irqSetActionMask) != 0 {
		return syscall.EINVAL
	}
	switch form {
	case IRQSetDataNone:
		if len(data) != 0 || len(m.fds) != 0 {
			return syscall.EINVAL
		}
	case IRQSetDataBool:
		if uint32(len(data)) != s.Count || len(m.fds) != 0 {
			return syscall.EINVAL
		}
	case IRQSetDataEventfd:
		// No descriptor at all means -1 for every vector.
		if len(data) != 0 || len(m.fds) != 0 && uint32(len(m.fds)) != s.Count {
			return syscall.EINVAL
		}
	default:
		return syscall.EINVAL
	}
	if s.Count == 0 {
		if form == IRQSetDataNone && action == IRQSetTrigger && s.Start == 0 {
			t.disable(q)
			return nil
		}
		return syscall.EINVAL
	}
	vectors := q.vectors[s.Start : s.Start+s.Count]
	chosen := func(i int) bool { return form == IRQSetDataNone || data[i] != 0 }
	switch action {
	case IRQSetTrigger:
		if form == IRQSetDataEventfd {
			return t.setEvents(vectors, m)
		}
		for i := range vectors {
			if chosen(i) {
				t.trigger(s.Index, s.Start+uint32(i))
			}
		}
	case IRQSetMask, IRQSetUnmask:
		if s.Index > IRQMSIX {
			return syscall.EINVAL // error and device-request interrupts cannot be masked
		}
		masked := action == IRQSetMask
		if form == IRQSetDataEventfd {
			return t.setMaskers(vectors, masked, m)
		}
		for i := range vectors {
			if chosen(i) {
				t.mask(&vectors[i], masked)
			}
		}
	default:
		return syscall.EINVAL
	}
	return nil
}

// setEvents replaces the eventfds of vectors by those of the message, or removes them if it has
// none. All descriptors are checked before the first is used.
func (t *irqTable) setEvents(vectors []vector, m *message) error {
	for _, fd := range m.fds {
		if err := checkEventfd(fd); err != nil {
			return err
		}
	}
	for i := range vectors {
		var e *event
		if len(m.fds) > 0 {
			e = newEvent(m.takeFD(i))
		}
		t.replace(&vectors[i], e)
	}
	return nil
}

func (t *irqTable) replace(v *vector, e *event) {
	t.mu.Lock()
	old := v.event
	v.event = e
	if e == nil {
		v.masked, v.pending = false, false
	}
	t.mu.Unlock()
	old.release()
}

// mask masks or unmasks a vector. Unmasking signals a pending interrupt.
func (t *irqTable) mask(v *vector, masked bool) {
	t.mu.Lock()
	v.masked = masked
	fire := !masked && v.pending && v.event != nil
	e := v.event
	if fire {
		v.pending = false
		e.refs.Add(1)
	}
	t.mu.Unlock()
	if fire {
		e.signal()
		e.release()
	}
}

func (t *irqTable) disable(q *irq) {
	for i := range q.vectors {
		v := &q.vectors[i]
		t.replace(v, nil)
		t.setMasker(v, false, nil)
		t.setMasker(v, true, nil)
	}
}

// close disables all interrupts and waits for the goroutines in watchMasker.
func (t *irqTable) close() {
	for i := range t.index {
		t.disable(&t.index[i])
	}
	t.watching.Wait()
}

// listening reports whether a vector has an eventfd.
func (t *irqTable) listening(index, vec uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return index < NumIRQs && int64(vec) < int64(len(t.index[index].vectors)) && t.index[index].vectors[vec].event != nil
}
