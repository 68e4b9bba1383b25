package ipc

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

// Ranks are a context's view of its guest's contexts: what they have on the GPU, and which
// of them goes next. They belong to the goroutine of the context's executor.
type Ranks struct {
	page  *Page
	i     int
	seen  uint64 // the page's changes at the newest look, + 1
	other []int  // the other contexts that were in use then
}

// Ranks returns context i's view.
func (p *Page) Ranks(i int) *Ranks { return &Ranks{page: p, i: i, other: make([]int, 0, MaxContexts)} }

// look finds out which contexts there are. One that comes says so before it puts anything
// on the GPU, so whoever looks after having written is seen by those that it does not see.
func (r *Ranks) look() {
	changed := r.page.Changed() + 1
	if changed == r.seen {
		return
	}
	r.seen, r.other = changed, r.other[:0]
	for k := range MaxContexts {
		if k != r.i && r.page.Context(k).State() != ContextNone {
			r.other = append(r.other, k)
		}
	}
}

// Admit records that the context has a on the GPU, if that fits beside what the guest's
// other contexts have there: no more than room of work in all, and nothing beside a launch
// that is long. The context waits for its turn among those that have said so by
// SetWaiting, unless jumps is set. Its executor calls it before it puts there what makes
// the difference to what was recorded before.
func (r *Ranks) Admit(a Ahead, room time.Duration, jumps bool) Admission {
	c := r.page.Context(r.i)
	if _, behind := r.waiter(); behind && !jumps {
		return Behind
	}
	before := c.ahead.Load()
	c.ahead.Store(a.word())
	// Every context writes first and looks then, so that of two at once one at least sees
	// the other. Both may withdraw; then both wait, and the first of them goes.
	if r.fits(a, room) {
		return Admitted
	}
	c.ahead.Store(before)
	r.Ring() // the next one may have seen what is withdrawn
	return Full
}

// fits reports whether a fits beside what the other contexts have on the GPU.
func (r *Ranks) fits(a Ahead, room time.Duration) bool {
	r.look()
	for _, k := range r.other {
		w := r.page.l.contexts[k].ahead.Load()
		if w == 0 {
			continue
		}
		o := aheadOf(w)
		if a.Long || o.Long {
			return false
		}
		if a.Work += o.Work; a.Work > room {
			return false
		}
	}
	return true
}

// waiter is the other context that has waited longest, -1 for none, and whether that is
// longer than this one has.
func (r *Ranks) waiter() (k int, before bool) {
	r.look()
	k = -1
	var first int64
	for _, o := range r.other {
		if t := r.page.l.contexts[o].waiting.Load(); t > 0 && (k < 0 || t < first) {
			k, first = o, t
		}
	}
	own := r.page.l.contexts[r.i].waiting.Load()
	return k, k >= 0 && (own <= 0 || first < own || first == own && k < r.i)
}

// Ring wakes the other context that has waited longest for room on the GPU. Whoever makes
// some calls it.
func (r *Ranks) Ring() {
	if k, _ := r.waiter(); k >= 0 {
		r.page.Context(k).Ring()
	}
}

// SetAhead records what the context has on the GPU without asking; its executor calls it.
func (c *ContextSlot) SetAhead(a Ahead) { c.ahead.Store(a.word()) }

// Ahead is what the context was last said to have on the GPU.
func (c *ContextSlot) Ahead() Ahead { return aheadOf(c.ahead.Load()) }

// SetWaiting records since when the context has waited for room on the GPU, an instant of
// clock.Real; 0: it does not. Its executor calls it, and asks again after it.
func (c *ContextSlot) SetWaiting(since time.Duration) { c.waiting.Store(int64(since)) }

// Waiting is since when the context has waited for room on the GPU; 0: it does not.
func (c *ContextSlot) Waiting() time.Duration { return time.Duration(c.waiting.Load()) }
