package fairshare

import "math"

// rotation measures how long the GPU takes to serve all channel groups once, by their turns. Newer
// phases count more than older ones.
type rotation struct {
	turns float64 // number of turns that channel groups had
	time  float64 // nanoseconds that groups with work waited for their turns or had them
}

// observe adds a phase that stands for factor times itself, with the quiet time before it. If it
// was spread over the quiet time, no turn of any length was missed.
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
			// While the GPU is idle no group waits for a turn: a guest with work then loads its
			// data, or only pretends to have work.
			r.time += max(elapsed-whole*float64(max(g.NoWork, g.Idle)), 0) * float64(max(g.Groups, 1))
		}
	}
}

// mean returns how long it takes a channel group from the beginning of one turn to that of its
// next.
func (r *rotation) mean() float64 { return r.time / max(r.turns, 1) }
