package link

import "time"

// Ahead is what a context has on the GPU that a suspension can't take back.
type Ahead struct {
	Launches int
	// Work is how long they are expected to take, as far as that is known.
	Work time.Duration
	// Long is whether one of them is not known to be brief. It may run up to the kernel
	// time limit, so nothing of the guest's other contexts goes beside it.
	Long bool
}

// A context's Ahead is one word on the page.
const (
	aheadWorkBits = 40 // nanoseconds
	aheadLongBit  = 1 << 63
	aheadMostWork = 1<<aheadWorkBits - 1
	aheadMost     = 1<<16 - 1
)

func (a Ahead) word() uint64 {
	w := uint64(min(max(a.Work, 0), aheadMostWork)) | uint64(min(max(a.Launches, 0), aheadMost))<<aheadWorkBits
	if a.Long {
		w |= aheadLongBit
	}
	return w
}

func aheadOf(word uint64) Ahead {
	return Ahead{
		Launches: int(word >> aheadWorkBits & aheadMost), Work: time.Duration(word & aheadMostWork), Long: word&aheadLongBit != 0,
	}
}

// Admission is the answer to a context that asks for room on the GPU.
type Admission uint8

const (
	// Admitted: the page says that the context has it.
	Admitted Admission = iota
	// Full: what the guest's other contexts have on the GPU leaves no room.
	Full
	// Behind: there may be room, and another context has waited longer for it.
	Behind
)

// Admit records that context i has a on the GPU, if that fits beside what the guest's
// other contexts have there: all of it together within room, and nothing beside a launch
// that is long. The context waits for its turn among those that have said so by
// SetWaiting, unless jumps is set. Its executor calls it, before it puts there what makes
// the difference to what was recorded before.
func (p *Page) Admit(i int, a, room Ahead, jumps bool) Admission {
	c := p.Context(i)
	if _, behind := p.waiter(i); behind && !jumps {
		return Behind
	}
	before := c.ahead.Load()
	c.ahead.Store(a.word())
	// Every context writes first and looks then, so that of two at once one at least sees
	// the other. Both may withdraw; then both wait, and the first of them goes.
	if p.fits(i, a, room) {
		return Admitted
	}
	c.ahead.Store(before)
	p.RingWaiter(i) // it may have seen what is withdrawn
	return Full
}

// fits reports whether a of context i fits beside what the others have on the GPU.
func (p *Page) fits(i int, a, room Ahead) bool {
	for k := range p.l.contexts {
		w := p.l.contexts[k].ahead.Load()
		if w == 0 || k == i {
			continue
		}
		o := aheadOf(w)
		if a.Long || o.Long {
			return false
		}
		a.Launches += o.Launches
		a.Work += o.Work
		if a.Launches > room.Launches || a.Work > room.Work {
			return false
		}
	}
	return true
}

// SetAhead records what context i has on the GPU without asking; its executor calls it.
func (c *ContextSlot) SetAhead(a Ahead) { c.ahead.Store(a.word()) }

// Ahead is what the context was last said to have on the GPU.
func (c *ContextSlot) Ahead() Ahead { return aheadOf(c.ahead.Load()) }

// SetWaiting records since when the context has waited for room on the GPU, an instant of
// clock.Real; 0: it does not. Its executor calls it, and asks again after it.
func (c *ContextSlot) SetWaiting(since time.Duration) { c.waiting.Store(int64(since)) }

// Waiting is since when the context has waited for room on the GPU; 0: it does not.
func (c *ContextSlot) Waiting() time.Duration { return time.Duration(c.waiting.Load()) }

// waiter is the context other than i that has waited longest, and whether that is longer
// than i has.
func (p *Page) waiter(i int) (k int, before bool) {
	k = -1
	var first int64
	for o := range p.l.contexts {
		if t := p.l.contexts[o].waiting.Load(); t > 0 && o != i && (k < 0 || t < first) {
			k, first = o, t
		}
	}
	own := p.l.contexts[i].waiting.Load()
	return k, k >= 0 && (own <= 0 || first < own || first == own && k < i)
}

// RingWaiter wakes the context other than i that has waited longest for room on the GPU.
// Whoever makes some calls it.
func (p *Page) RingWaiter(i int) {
	if k, _ := p.waiter(i); k >= 0 {
		p.Context(k).Ring()
	}
}
