package fairshare

import "math"

// rotation is in what time a GPU that takes turns goes around, lately: newer phases
// count more than older ones.
type rotation struct {
	turns float64 // that channel groups had
	time  float64 // in nanoseconds, that a group with work waited for its turns or had them
}

// observe takes in a phase that stands for factor of its kind, with the quiet time
// before it. Where it was spread over that, no turn of any length was missed.
func (r *rotation) observe(st *State, ev *Event, factor float64) {
	elapsed, whole := factor*float64(ev.Length), factor
	if ev.Spread {
		factor = 1
	}
	keep := math.Exp(-elapsed / float64(memory))
	r.turns, r.time = keep*r.turns, keep*r.time
	for i := range st.Guests {
		if g := &st.Guests[i]; g.Active && !g.Suspended {
			r.turns += factor * float64(g.Runs)
			// While the GPU is idle nobody waits for a turn: who has work then loads what
			// it computes with, or only shows some.
			r.time += max(elapsed-whole*float64(max(g.NoWork, g.Idle)), 0) * float64(max(g.Groups, 1))
		}
	}
}

// mean is how long a channel group waited from the beginning of one turn to that of
// its next.
func (r *rotation) mean() float64 { return r.time / max(r.turns, 1) }
