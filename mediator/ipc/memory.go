package ipc

import "sync/atomic"

// unlimited stands for no limit. It is so low that the sum of all contexts' words can't overflow.
const unlimited = 1 << 56

// takeAttempts bounds how often Take starts again because other contexts called it at the same
// time. Of those that collide, one succeeds.
const takeAttempts = 1 << 10

// Memory is a guest's GPU memory limit, as one of the guest's contexts uses it. It implements
// gpu.Budget.
//
// Each context's slot has a word for the memory that it has taken, which only its executor writes; the
// sum never exceeds the limit. When an executor dies vm frees the slot, and with it what the context
// had. The limit is the guest's and not the context's, and is kept here and not in the GPU, because
// GPUs other than the soft one don't know guests.
type Memory struct {
	page  *ControlPage
	own   *atomic.Uint64
	setup uint64
	grant atomic.Uint64 // of this context alone; 0 is none
	peak  atomic.Uint64
	// exempt takes the guest's limit off, but not the grant.
	exempt atomic.Bool
}

// Memory returns the guest's memory for the context in a slot. limit is in bytes, and holds until a
// daemon has set one on the page; 0 is no limit.
func (p *ControlPage) Memory(slot int, limit uint64) *Memory {
	return &Memory{page: p, own: &p.Context(slot).memory, setup: limit}
}

// Granted returns the same memory for a context that may take up to grant bytes of it by itself; 0
// is as much as the guest may.
func (m *Memory) Granted(grant uint64) *Memory {
	n := &Memory{page: m.page, own: m.own, setup: m.setup}
	n.grant.Store(grant)
	return n
}

// SetGrant changes what a context may take that was granted something.
func (m *Memory) SetGrant(grant uint64) { m.grant.Store(grant) }

// SetExempt has the context take up to its grant, or no longer, whatever the guest's limit is now: what it
// had before its GPU changed is its own, even if the limit was lowered since.
func (m *Memory) SetExempt(exempt bool) { m.exempt.Store(exempt && m.grant.Load() > 0) }

// limit returns the limit that holds now. The daemon may have lowered it below what is taken: then
// nothing more is.
func (m *Memory) limit() uint64 {
	if m.exempt.Load() {
		return unlimited
	}
	limit, ok := m.page.MemoryLimit()
	if !ok {
		limit = m.setup
	}
	if limit == 0 || limit > unlimited {
		return unlimited
	}
	return limit
}

// MemoryTaken returns how much GPU memory the guest's contexts have taken, in bytes.
func (p *ControlPage) MemoryTaken() uint64 {
	var sum uint64
	for i := range p.l.contexts {
		sum += p.l.contexts[i].memory.Load()
	}
	return sum
}

// MemoryTaken returns how much GPU memory the context has taken, in bytes, within bounds.
func (c *ContextSlot) MemoryTaken() uint64 { return min(c.memory.Load(), maxBytes) }

// Take takes n bytes, or reports false and takes nothing.
//
// It adds the bytes to the context's word first and then sums all words. Of several contexts that
// do so at once, the last one to sum sees all others, so the limit is never exceeded; and the last
// one to withdraw sees no other, so it may try again.
func (m *Memory) Take(n uint64) bool {
	for range takeAttempts {
		if free, _ := m.Room(); n > free {
			return false
		}
		m.own.Add(n)
		if grant := m.grant.Load(); m.page.MemoryTaken() <= m.limit() && (grant == 0 || m.own.Load() <= grant) {
			m.notePeak()
			return true
		}
		m.own.Add(-n)
	}
	return false
}

// notePeak notes what the context has taken now, if it never had more.
func (m *Memory) notePeak() {
	now := m.own.Load()
	for {
		before := m.peak.Load()
		if now <= before || m.peak.CompareAndSwap(before, now) {
			return
		}
	}
}

// Peak returns the most that the context has taken at a time, in bytes, through this Memory.
func (m *Memory) Peak() uint64 { return m.peak.Load() }

// Give gives n bytes back.
func (m *Memory) Give(n uint64) { m.own.Add(-n) }

// Room returns how much may still be taken, and the limit.
func (m *Memory) Room() (free, total uint64) {
	total = m.limit()
	free = total - min(m.page.MemoryTaken(), total)
	if grant := m.grant.Load(); grant > 0 {
		total = min(total, grant)
		free = min(free, grant-min(m.own.Load(), grant))
	}
	return free, total
}
