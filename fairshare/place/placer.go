package place

import "math"

// Placer chooses a GPU for a task.
type Placer interface {
	// Place returns the index of the GPU on which a task begins. It considers only the GPUs of may,
	// which all have room for r.Memory. ok reports whether there is one.
	Place(gpus []GPU, may Set, r *Request) (i int, ok bool)
}

// Warps is CASE's algorithm 3: of the GPUs with memory, the one with the fewest resident warps in
// use, the first of several. Computing is no bound.
type Warps struct{}

// Place implements [Placer].
func (Warps) Place(gpus []GPU, may Set, _ *Request) (int, bool) {
	return fewest(gpus, may, func(g *GPU) uint64 { return g.warps })
}

// fewest returns the index of the GPU of may with the least count, the first of several.
func fewest(gpus []GPU, may Set, count func(*GPU) uint64) (int, bool) {
	best, least := -1, uint64(math.MaxUint64)
	for i := range gpus {
		if n := count(&gpus[i]); may.Has(i) && n < least {
			best, least = i, n
		}
	}
	return best, best >= 0
}

// GridWarps is algorithm 3 by the warps of whole grids instead of those that are resident.
type GridWarps struct{}

// Place implements [Placer].
func (GridWarps) Place(gpus []GPU, may Set, _ *Request) (int, bool) {
	return fewest(gpus, may, func(g *GPU) uint64 { return g.gridWarps })
}

// LeastBusy places on the GPU that was busy for the smallest part of the time, then on the one with
// the fewest tasks. A guest stays on the GPU where it was last if that has no more tasks and is not much busier: a context
// begins there sooner, and to make it ready there has made that GPU a little busier. It is for GPUs whose
// contexts only take turns, where warps say little.
type LeastBusy struct{}

const (
	// busyStep is the smallest difference in busyness that counts.
	busyStep = 0.05
	// stayStep is the smallest that counts against the GPU where a guest was last.
	stayStep = 0.25
)

// Place implements [Placer].
func (LeastBusy) Place(gpus []GPU, may Set, r *Request) (int, bool) {
	best := leastBusy(gpus, may)
	if last := r.Last - 1; best >= 0 && last >= 0 && last < len(gpus) && may.Has(last) {
		if l, b := &gpus[last], &gpus[best]; len(l.tasks) <= len(b.tasks) && l.Busy < b.Busy+stayStep {
			return last, true
		}
	}
	return best, best >= 0
}

// leastBusy returns the least busy GPU, or -1.
func leastBusy(gpus []GPU, may Set) int {
	best := -1
	for i := range gpus {
		if !may.Has(i) {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		a, b := &gpus[i], &gpus[best]
		// Tasks that were placed lately are not yet in the accounting.
		da, db := math.Floor(a.Busy/busyStep), math.Floor(b.Busy/busyStep)
		if da < db || da == db && len(a.tasks) < len(b.tasks) {
			best = i
		}
	}
	return best
}

// Blocks is CASE's algorithm 2: the first GPU with memory whose SMs have room for all blocks of the
// largest grid, dealt round robin. A grid larger than an idle GPU counts as what one holds.
type Blocks struct{}

// Place implements [Placer].
func (Blocks) Place(gpus []GPU, may Set, r *Request) (int, bool) {
	var h shape
	var want uint64
	kind := -1
	for i := range gpus {
		g := &gpus[i]
		if !may.Has(i) {
			continue
		}
		if kind != g.kind { // most hosts have GPUs of one kind
			kind, h, want = g.kind, shapeOf(&g.Spec, r), g.resident(r)
		}
		if g.sms.fits(&g.Spec, h, want) {
			return i, true
		}
	}
	return -1, false
}
