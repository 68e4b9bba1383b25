package accounting

import (
	"slices"
	"time"
)

// contextID is how a record of a context switch names a context: by process if that is known,
// otherwise by group.
type contextID struct {
	pid   int
	group GroupID
}

func (sw Switch) context() contextID {
	if sw.PID != 0 {
		return contextID{pid: sw.PID}
	}
	return contextID{group: sw.Group}
}

// residenceKind is what is known of the engine during a residence.
type residenceKind uint8

const (
	// unknown means that nothing is known: before the first record, and after records were lost.
	unknown residenceKind = iota
	// occupied means that a context was on the engine.
	occupied
	// vacant means that none was: after one context was saved and before the next was loaded.
	vacant
)

// residence is a period in which the same is known of the engine.
type residence struct {
	from, to time.Duration // to is noEnd in the newest
	kind     residenceKind
	context  contextID
	// saved reports whether it ended with a record of the context's having been saved. That record
	// comes after the save, so the end of the residence is not work.
	saved bool
}

// residency tells which context was on the engine, by the records of context switches. Residences
// follow each other without a gap, and the last one has no end.
type residency struct {
	residences []residence
	// begun reports whether a record, or the loss of some, has come. The first record also tells
	// what was on the engine before it.
	begun bool
}

func newResidency(start time.Duration) residency {
	return residency{residences: []residence{{from: start, to: noEnd}}}
}

func (r *residency) last() *residence { return &r.residences[len(r.residences)-1] }

// record adds the next record and reports whether a context took the place of another one.
func (r *residency) record(sw Switch) (changed bool) {
	first, id := !r.begun, sw.context()
	r.begun = true
	last := r.last()
	at := max(sw.Clock, last.from)
	switch {
	case sw.On && last.kind == occupied && last.context == id:
		// It returns although no record told that it left.
	case sw.On:
		if last.kind == unknown && first {
			last.kind = vacant // had a context been there, its save would have come first
		}
		r.begin(residence{from: at, kind: occupied, context: id}, false)
		return true
	case last.kind == unknown && first:
		last.kind, last.context = occupied, id
		r.begin(residence{from: at, kind: vacant}, true)
	case last.kind == unknown, last.kind == occupied && last.context == id:
		r.begin(residence{from: at, kind: vacant}, last.kind == occupied)
	}
	return false
}

// lost notes that records are missing after the newest one. It is not known for how long that one
// held.
func (r *residency) lost() {
	last := r.last()
	last.kind, last.context = unknown, contextID{}
	r.begun = true
}

// begin ends the newest residence where the next one begins.
func (r *residency) begin(next residence, saved bool) {
	last := r.last()
	last.to, last.saved = next.from, saved
	next.to = noEnd
	r.residences = append(r.residences, next)
}

// dropBefore removes residences that were over by t. It never removes the newest one.
func (r *residency) dropBefore(t time.Duration) {
	i := 0
	for i < len(r.residences)-1 && r.residences[i].to <= t {
		i++
	}
	r.residences = slices.Delete(r.residences, 0, i)
}
