package ipc

import "time"

// FetchAhead is what a context has on the GPU that a suspension can't take back.
type FetchAhead struct {
	Launches int
	// Work is how long the launches are expected to take, as far as that is known.
	Work time.Duration
	// Long reports whether one of the launches is not known to be short. It may run up to the
	// kernel time limit, so the guest's other contexts put nothing beside it.
	Long bool
}

// A context's FetchAhead is one word on the page.
const (
	fetchAheadWorkBits    = 40 // nanoseconds
	fetchAheadLongBit     = 1 << 63
	fetchAheadMaxWork     = 1<<fetchAheadWorkBits - 1
	fetchAheadMaxLaunches = 1<<16 - 1
)

func (a FetchAhead) word() uint64 {
	w := uint64(min(max(a.Work, 0), fetchAheadMaxWork)) | uint64(min(max(a.Launches, 0), fetchAheadMaxLaunches))<<fetchAheadWorkBits
	if a.Long {
		w |= fetchAheadLongBit
	}
	return w
}

func fetchAheadOf(word uint64) FetchAhead {
	return FetchAhead{
		Launches: int(word >> fetchAheadWorkBits & fetchAheadMaxLaunches), Work: time.Duration(word & fetchAheadMaxWork), Long: word&fetchAheadLongBit != 0,
	}
}

// Admission is the answer to a context that asks for room on the GPU.
type Admission uint8

const (
	// Admitted: the page records that the context has the room.
	Admitted Admission = iota
	// Full: the guest's other contexts have too much on the GPU.
	Full
	// Behind: there may be room, but another context has waited longer for it.
	Behind
)

// Admitter admits a context's launches to the GPU by what its guest's other contexts have there,
// and by which of them has waited longest. It belongs to the goroutine of the context's executor.
type Admitter struct {
	page    *ControlPage
	i       int
	changes uint64 // the page's change count at the last refresh, plus 1
	others  []int  // the other contexts that were in use then
}

// Admitter returns context i's admitter.
func (p *ControlPage) Admitter(i int) *Admitter {
	return &Admitter{page: p, i: i, others: make([]int, 0, MaxContexts)}
}

// refresh finds out which contexts there are. A new context counts a change before it puts anything
// on the GPU. So a context that writes its word and then refreshes is seen by each context that it
// does not see itself.
func (r *Admitter) refresh() {
	changed := r.page.Changed() + 1
	if changed == r.changes {
		return
	}
	r.changes, r.others = changed, r.others[:0]
	for k := range MaxContexts {
		if k != r.i && r.page.Context(k).State() != ContextNone {
			r.others = append(r.others, k)
		}
	}
}

// Admit records that the context has a on the GPU, if that fits beside what the guest's other
// contexts have there: all of it together is at most room of work, and nothing goes beside a long
// launch. Contexts that wait, by SetWaiting, are admitted in the order in which they began to,
// unless jumps is set. The executor calls Admit before it puts the difference to what was recorded
// before on the GPU.
func (r *Admitter) Admit(a FetchAhead, room time.Duration, jumps bool) Admission {
	c := r.page.Context(r.i)
	if r.waiter().before && !jumps {
		return Behind
	}
	before := c.fetchAhead.Load()
	c.fetchAhead.Swap(a.word())
	// Every context writes before it reads the others' words, so of two at once at least one sees
	// the other. Both may withdraw; then both wait, and the first of them goes next.
	if r.fits(a, room) {
		return Admitted
	}
	c.fetchAhead.Swap(before)
	r.WakeNext() // the next context may have seen the word that is withdrawn
	return Full
}

// fits reports whether a fits beside what the other contexts have on the GPU.
func (r *Admitter) fits(a FetchAhead, room time.Duration) bool {
	r.refresh()
	for _, k := range r.others {
		w := r.page.l.contexts[k].fetchAhead.Load()
		if w == 0 {
			continue
		}
		o := fetchAheadOf(w)
		if a.Long || o.Long {
			return false
		}
		if a.Work += o.Work; a.Work > room {
			return false
		}
	}
	return true
}

// waiter is the context that has waited longest, of those other than one's own.
type waiter struct {
	context int  // its number; -1: none waits
	before  bool // it has waited longer than one's own context
}

// waiter returns the other context that has waited longest.
func (r *Admitter) waiter() waiter {
	r.refresh()
	k := -1
	var first int64
	for _, o := range r.others {
		if t := r.page.l.contexts[o].waiting.Load(); t > 0 && (k < 0 || t < first) {
			k, first = o, t
		}
	}
	own := r.page.l.contexts[r.i].waiting.Load()
	return waiter{k, k >= 0 && (own <= 0 || first < own || first == own && k < r.i)}
}

// WakeNext wakes the other context that has waited longest for room on the GPU. An executor that
// has made room calls it.
func (r *Admitter) WakeNext() {
	if k := r.waiter().context; k >= 0 {
		r.page.Context(k).Wake()
	}
}

// Awaited reports whether another context waits for room on the GPU.
func (r *Admitter) Awaited() bool { return r.waiter().context >= 0 }

// WakeLong wakes the other contexts that nothing goes beside. An executor that begins to wait calls it:
// what another has on the GPU may be able to make room.
func (r *Admitter) WakeLong() {
	r.refresh()
	for _, k := range r.others {
		if w := r.page.l.contexts[k].fetchAhead.Load(); fetchAheadOf(w).Long {
			r.page.Context(k).Wake()
		}
	}
}

// SetFetchAhead records what the context has on the GPU, without asking for room. Its executor
// calls it.
func (c *ContextSlot) SetFetchAhead(a FetchAhead) { c.fetchAhead.Swap(a.word()) }

// FetchAhead returns what the context was last recorded to have on the GPU.
func (c *ContextSlot) FetchAhead() FetchAhead { return fetchAheadOf(c.fetchAhead.Load()) }

// SetWaiting records since when the context has waited for room on the GPU, an instant of
// clock.Real, or 0 if it does not wait. Its executor calls it, and then asks for room again.
func (c *ContextSlot) SetWaiting(since time.Duration) { c.waiting.Swap(int64(since)) }

// Waiting returns since when the context has waited for room on the GPU, or 0.
func (c *ContextSlot) Waiting() time.Duration { return time.Duration(c.waiting.Load()) }
