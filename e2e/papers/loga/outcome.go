package main

import (
	"time"

	"gonum.org/v1/gonum/floats"

	"vgpud/accounting"
)

// outcome is what a run came to. Times of tenants are in the tenants' order.
type outcome struct {
	length time.Duration
	// accounted is the result of accounting, and truth the GPU's own count.
	accounted, truth []time.Duration
	kernels          []uint64
	seconds          []use // of every second, one beginning each tenth
	whole            use
	idle             time.Duration
	phases           accounting.Phase // sums; Groups is not used
	suspensions      uint64
}

// use is which part of some time tenants used, and in which part they had no work at all.
type use struct{ used, noWork []float64 }

// marksPerSecond is how often a run notes how far the tenants are. A second that is looked at
// begins at each mark.
const marksPerSecond = 10

// mark is how much the tenants had used at an instant, in seconds, and how long they had had no
// work.
type mark struct {
	at           time.Duration
	busy, noWork []float64
}

// mark notes how far the tenants are.
func (r *run) mark() {
	m := mark{at: r.sim.Now()}
	for _, g := range r.sim.Guests() {
		m.busy = append(m.busy, g.Usage().Busy.Seconds())
		m.noWork = append(m.noWork, g.Idle().Seconds())
	}
	r.marks = append(r.marks, m)
}

// markInTime notes how far the tenants are, marksPerSecond times a second.
func (r *run) markInTime() {
	if now := r.sim.Now(); now-r.marks[len(r.marks)-1].at >= time.Second/marksPerSecond {
		r.mark()
	}
}

// sums returns what has come of the simulation so far.
func (r *run) sums() *outcome {
	out := &outcome{length: r.sim.Now(), idle: r.sim.Totals().Idle}
	for i, g := range r.sim.Guests() {
		bill := r.guests[i].Bill()
		out.accounted = append(out.accounted, bill.Used)
		out.suspensions += bill.Suspensions
		out.truth = append(out.truth, g.Usage().Busy)
		out.kernels = append(out.kernels, g.Progress().Completed)
	}
	return out
}

// outcome ends the run.
func (r *run) outcome() *outcome {
	r.mark()
	out := r.sums()
	out.length -= r.start.length
	out.idle -= r.start.idle
	out.suspensions -= r.start.suspensions
	for i := range out.truth {
		out.accounted[i] -= r.start.accounted[i]
		out.truth[i] -= r.start.truth[i]
		out.kernels[i] -= r.start.kernels[i]
	}
	if r.accounted != nil {
		out.accounted = r.accounted
	}
	out.phases = r.phases
	for first := range r.marks {
		for _, m := range r.marks[first:] {
			if m.at-r.marks[first].at >= time.Second {
				out.seconds = append(out.seconds, between(r.marks[first], m))
				break
			}
		}
	}
	out.whole = between(r.marks[0], r.marks[len(r.marks)-1])
	return out
}

// between returns how the time between two marks was used.
func between(a, b mark) use {
	part := func(from, to []float64) []float64 {
		d := floats.SubTo(make([]float64, len(to)), to, from)
		floats.Scale(1/(b.at-a.at).Seconds(), d)
		return d
	}
	return use{used: part(a.busy, b.busy), noWork: part(a.noWork, b.noWork)}
}

// firstToOthers returns the first tenant's GPU time, divided by the mean of the others'.
func (o *outcome) firstToOthers() float64 {
	return o.truth[0].Seconds() / (totalOf(o.truth[1:]).Seconds() / float64(len(o.truth)-1))
}

func totalOf(times []time.Duration) (sum time.Duration) {
	for _, d := range times {
		sum += d
	}
	return sum
}
