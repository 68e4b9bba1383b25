package accounting

import (
	"slices"
	"time"
)

// owner is whom a record of a context switch names: by process where that is
// known, by group where not.
type owner struct {
	pid   int
	group GroupID
}

func (sw Switch) owner() owner {
	if sw.PID != 0 {
		return owner{pid: sw.PID}
	}
	return owner{group: sw.Group}
}

// stayKind is what is known of who was on the engine.
type stayKind uint8

const (
	// unknown: nobody has told. Before the first record, and after some were lost.
	unknown stayKind = iota
	// held: a context was there.
	held
	// vacant: none was. Between a context that was saved and the next one.
	vacant
)

// stay is a stretch of time with one answer to who was on the engine.
type stay struct {
	from, to time.Duration // to is [open] in the newest
	kind     stayKind
	owner    owner
	// saved is whether it ended with the record of the context's having been
	// saved, which comes after the save: the end of the stay is no work.
	saved bool
}

// open is the end of a stay that has not ended.
const open = time.Duration(1<<63 - 1)

// residency is who was on the engine, as records of context switches tell. Stays
// follow each other without a gap; the last is open.
type residency struct {
	stays []stay
	// begun is whether a record, or the loss of some, has come: until then the
	// first record tells who was there before it.
	begun bool
}

func newResidency(start time.Duration) residency {
	return residency{stays: []stay{{from: start, to: open}}}
}

func (r *residency) last() *stay { return &r.stays[len(r.stays)-1] }

// record takes in the next record, and reports whether a context took the place
// of another one.
func (r *residency) record(sw Switch) (changed bool) {
	first, who := !r.begun, sw.owner()
	r.begun = true
	last := r.last()
	at := max(sw.Clock, last.from)
	switch {
	case sw.On && last.kind == held && last.owner == who:
		// It comes back to where nobody saw it leave.
	case sw.On:
		if last.kind == unknown && first {
			last.kind = vacant // had anybody been there, its save would have come first
		}
		r.turn(stay{from: at, kind: held, owner: who}, false)
		return true
	case last.kind == unknown && first:
		last.kind, last.owner = held, who
		r.turn(stay{from: at, kind: vacant}, true)
	case last.kind == unknown, last.kind == held && last.owner == who:
		r.turn(stay{from: at, kind: vacant}, last.kind == held)
	}
	return false
}

// lost says that records are missing after the newest one.
func (r *residency) lost() {
	// What the newest said was right for a time that nobody knows.
	last := r.last()
	last.kind, last.owner = unknown, owner{}
	r.begun = true
}

// turn ends the newest stay where the next one begins.
func (r *residency) turn(next stay, saved bool) {
	last := r.last()
	last.to, last.saved = next.from, saved
	next.to = open
	r.stays = append(r.stays, next)
}

// forget drops what was over before t. The newest stay is never.
func (r *residency) forget(t time.Duration) {
	i := 0
	for i < len(r.stays)-1 && r.stays[i].to <= t {
		i++
	}
	r.stays = slices.Delete(r.stays, 0, i)
}

// Span is a stretch of time on the GPU's clock.
type Span struct{ Start, End time.Duration }

// spans is a set of instants: spans in order that neither overlap nor touch.
type spans []Span

// maxSpans is how many spans a set takes in one by one. It is more than launches with
// gaps between them come to in the time for which they are kept.
const maxSpans = 4096

// add puts a span into the set.
func (w *spans) add(s Span) {
	if s.End <= s.Start {
		return
	}
	// New ones come at the end, or overlap what is there.
	i := len(*w)
	for i > 0 && (*w)[i-1].End >= s.Start {
		i--
	}
	j := i
	for j < len(*w) && (*w)[j].Start <= s.End {
		s.Start, s.End = min(s.Start, (*w)[j].Start), max(s.End, (*w)[j].End)
		j++
	}
	*w = slices.Replace(*w, i, j, s)
}

// merge puts spans into the set that are in order of their starts, and none of them
// empty. In a set that is full the last one takes in what comes after it, gaps
// included. It goes once over what comes after the first of them, however they lie,
// and was is memory for that; merge returns it.
func (w *spans) merge(told, was []Span) []Span {
	if len(told) == 0 {
		return was
	}
	i := w.after(told[0].Start - 1) // also one that it touches
	was = append(was[:0], (*w)[i:]...)
	*w = (*w)[:i]
	for rest := was; len(rest)+len(told) > 0; {
		if len(told) == 0 || len(rest) > 0 && rest[0].Start <= told[0].Start {
			w.push(rest[0])
			rest = rest[1:]
		} else {
			w.push(told[0])
			told = told[1:]
		}
	}
	return was
}

// push puts a span into the set that starts no earlier than the last one there.
func (w *spans) push(s Span) {
	if n := len(*w); n > 0 && (s.Start <= (*w)[n-1].End || n >= maxSpans) {
		(*w)[n-1].End = max((*w)[n-1].End, s.End)
		return
	}
	*w = append(*w, s)
}

// forget drops what was before t.
func (w *spans) forget(t time.Duration) {
	*w = slices.Delete(*w, 0, w.after(t))
	if len(*w) > 0 {
		(*w)[0].Start = max((*w)[0].Start, t)
	}
}

// until drops what is from t on.
func (w *spans) until(t time.Duration) {
	for n := len(*w); n > 0 && (*w)[n-1].End > t; n-- {
		if (*w)[n-1].Start < t {
			(*w)[n-1].End = t
			return
		}
		*w = (*w)[:n-1]
	}
}

// after is the index of the first span that ends after t.
func (w spans) after(t time.Duration) int {
	i, _ := slices.BinarySearchFunc(w, t, func(s Span, t time.Duration) int {
		if s.End <= t {
			return -1
		}
		return 1
	})
	return i
}

// overlap is how much of the set lies in s.
func (w spans) overlap(s Span) (sum time.Duration) {
	for i := w.after(s.Start); i < len(w) && w[i].Start < s.End; i++ {
		sum += min(w[i].End, s.End) - max(w[i].Start, s.Start)
	}
	return sum
}

// at is whether t is in the set, and until when that stays so.
func (w spans) at(t time.Duration) (in bool, until time.Duration) {
	return w[w.after(t):].first(t)
}

// first is the same of a set of which no span ends by t.
func (w spans) first(t time.Duration) (in bool, until time.Duration) {
	switch {
	case len(w) == 0:
		return false, open
	case t < w[0].Start:
		return false, w[0].Start
	default:
		return true, w[0].End
	}
}
