package ipc

import "sync/atomic"

// unlimited stands for no limit. It is so low that all contexts' words together
// can't overflow.
const unlimited = 1 << 56

// takeTries bounds how often Take begins anew because others asked at the same
// moment. Each time one of those that collided has what it wanted.
const takeTries = 1 << 10

// Memory is the GPU memory that a guest's contexts share, seen by one of them. It
// implements gpu.Budget.
//
// What each context has taken is a word in its slot, which its executor alone
// writes; together they never exceed the limit. So nothing has to be put right
// when an executor dies: vm frees the slot, and with it what it had. It counts
// the guest and not the context, and does so here and not in the GPU, because
// GPUs other than the soft one know nothing of guests.
type Memory struct {
	page  *Page
	own   *atomic.Uint64
	limit uint64
}

// Memory is the guest's memory as the context in a slot takes it; a limit of 0
// bytes is none.
func (p *Page) Memory(slot int, limit uint64) *Memory {
	if limit == 0 || limit > unlimited {
		limit = unlimited
	}
	return &Memory{page: p, own: &p.Context(slot).memory, limit: limit}
}

// MemoryTaken is how much GPU memory the guest's contexts have taken, in bytes.
func (p *Page) MemoryTaken() uint64 {
	var sum uint64
	for i := range p.l.contexts {
		sum += p.l.contexts[i].memory.Load()
	}
	return sum
}

// Take takes n bytes, or nothing where there are not as many.
//
// It claims them first and then looks whether all claims fit. Of several that
// don't fit together the last one to look sees all others, so that never too much
// is taken; and the last one to withdraw sees no other, so that it may try again.
func (m *Memory) Take(n uint64) bool {
	for range takeTries {
		if free, _ := m.Room(); n > free {
			return false
		}
		m.own.Add(n)
		if m.page.MemoryTaken() <= m.limit {
			return true
		}
		m.own.Add(-n)
	}
	return false
}

// Give gives n bytes back.
func (m *Memory) Give(n uint64) { m.own.Add(-n) }

// Room is how much may still be taken, and how much there is in all.
func (m *Memory) Room() (free, total uint64) {
	return m.limit - min(m.page.MemoryTaken(), m.limit), m.limit
}
