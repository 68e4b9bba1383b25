package main

import "time"

// distances are a run's largest distances from quotas: of caps and guarantees in points of the GPU's
// time over any window, of budgets in rounds.
type distances struct {
	// over is use above a cap, and under what a guest lacked of a cap that there was room for, of the
	// time in which it was held. The rest of what it lacked others had, whose kernels came first.
	over, under float64
	// lacked is what a guest lacked of its guarantee, and taken the same without the time in which
	// kernels of suspended guests ran.
	lacked, taken float64
	// charged is use beyond a budget, by the budget's account, when the guest is held for it, and
	// overrun the same by the GPU's own count at the end.
	charged, overrun float64
	// ranOn is what of overrun kernels used that ran on when the guest was held, and missed what
	// accounting had missed until then.
	ranOn, missed float64
}

// windows calls f with the sums of a program in each window.
func (o *outcome) windows(program int, f func(m mark)) {
	n := int(window / step)
	for first := 0; first+n < len(o.marks); first++ {
		a, b := o.marks[first][program], o.marks[first+n][program]
		f(mark{b.used - a.used, b.working - a.working, b.available - a.available, b.stuck - a.stuck, b.held - a.held})
	}
}

// points returns a time as a part of a window, in points.
func points(t float64) float64 { return 100 * t / float64(window) }

// measure compares what the guests used with their quotas.
//
// A guest is owed its guarantee of the time in which it had work and the GPU did not switch between
// contexts.
func (t *trial) measure(o *outcome) (d distances) {
	for i, p := range t.programs {
		o.windows(i, func(m mark) {
			used := float64(m.used)
			if c := p.terms.Cap; c > 0 {
				d.over = max(d.over, points(used-c*float64(window)))
				if t.quota == capsOfAll {
					d.under = max(d.under, points(min(c*float64(m.available)-used, float64(m.held))))
				}
			}
			if g := p.terms.Guarantee; g > 0 {
				d.lacked = max(d.lacked, points(g*float64(m.available)-used))
				d.taken = max(d.taken, points(g*float64(m.available-m.stuck)-used))
			}
		})
		if p.budget > 0 && o.spent[i].used > 0 {
			spent, used := o.spent[i], o.marks[len(o.marks)-1][i].used
			rounds := func(t time.Duration) float64 { return float64(t) / float64(o.round) }
			d.charged = max(d.charged, rounds(spent.charged-p.budget))
			d.overrun = max(d.overrun, rounds(used-p.budget))
			d.ranOn = max(d.ranOn, rounds(used-spent.used))
			d.missed = max(d.missed, rounds(spent.used-spent.charged))
		}
	}
	return d
}

// worst is the largest of some runs' distances, and in which run it was.
type worst struct {
	Value float64 `json:"value"`
	Of    string  `json:"of,omitempty"`
	Runs  int     `json:"runs"`
	// Beyond is how many runs are beyond the goal.
	Beyond int `json:"beyond"`
}

// add adds a run's value.
func (w *worst) add(value, goal float64, of string) {
	w.Runs++
	if value > goal {
		w.Beyond++
	}
	if value > w.Value || w.Of == "" {
		w.Value, w.Of = max(value, 0), of
	}
}

// merge adds other runs.
func (w *worst) merge(o worst) {
	w.Runs += o.Runs
	w.Beyond += o.Beyond
	if o.Of != "" && (o.Value > w.Value || w.Of == "") {
		w.Value, w.Of = o.Value, o.Of
	}
}
