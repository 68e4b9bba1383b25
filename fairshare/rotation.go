package fairshare

import "math"

// rotation is in what time a GPU that takes turns goes around, lately: newer phases
// count more than older ones.
type rotation struct {
	turns float64 // that channel groups had
	time  float64 // in nanoseconds, of each group that had work
}

// observe takes in a phase that stands for factor of its kind, with the quiet time
// before it. Where it was spread over that, no turn of any length was missed.
func (r *rotation) observe(st *State, ev *Event, factor float64) {
	elapsed := factor * float64(ev.Length)
	if ev.Spread {
		factor = 1
	}
	keep := math.Exp(-elapsed / float64(memory))
	r.turns, r.time = keep*r.turns, keep*r.time
	for i := range st.Guests {
		if g := &st.Guests[i]; g.Active && !g.Suspended {
			r.turns += factor * float64(g.Spans)
			r.time += elapsed * float64(max(g.Groups, 1))
		}
	}
}

// mean is how long a channel group waited from the beginning of one turn to that of
// its next.
func (r *rotation) mean() float64 { return r.time / max(r.turns, 1) }
