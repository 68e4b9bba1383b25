package fairshare

import "time"

// losses measures what [fairFirst] loses of the GPU's time beside what its evictions
// were expected to cost. A launch of which it is known how long it runs has, from its
// first turn to its end, that much of the GPU's time, its evictions, and what is lost
// besides: the GPU waits for the host from one launch's end to the next one's
// beginning, and an eviction may cost more than was expected of it.
type losses struct {
	launches book[charged]
	served   LaunchID      // whose time it has been since the last call; 0: none's
	waited   time.Duration // for launches, since one ended
	// Of launches that have ended, the late ones above all: the time they had, and what
	// of that was lost beside the expected cost of their evictions.
	had, lost float64
}

// charged is what is kept of a launch.
type charged struct {
	had, cost, predicted time.Duration
	leaving              bool // told to leave, and has not
}

const (
	// lossWindow is how much of the time of launches that have ended is remembered. It
	// begins with lossPrior, in which nothing was lost.
	lossWindow, lossPrior = float64(time.Second), float64(100 * time.Millisecond)
	// leastLeft is the part of max_overhead that is left for evictions whatever is
	// lost besides: a prediction that is wrong must not end taking turns.
	leastLeft = 0.2
	// aimed is the part of max_overhead that is aimed at where losses are measured:
	// they vary, and the bound is to hold.
	aimed = 0.9
)

// pass takes in that time has passed in which the GPU was somebody's. What nobody else
// waited for is not lost.
func (l *losses) pass(d time.Duration, alone bool) {
	if at := l.launches.find(l.served, 0); l.served != 0 && at >= 0 {
		l.launches.of[at].had += d
	} else if !alone {
		l.waited += d
	}
}

// sync takes in the launches of the newest state, and one that has ended.
func (l *losses) sync(ev Event, st *State) {
	if ev.Kind == Finished {
		l.finished(ev.Launch)
	}
	l.launches.sync(st.Launches)
	for i := range st.Launches {
		c := &l.launches.of[i]
		c.predicted = st.Launches[i].Predicted
		c.leaving = c.leaving && st.Launches[i].Running
	}
}

func (l *losses) finished(id LaunchID) {
	at := l.launches.find(id, 0)
	if at < 0 {
		return
	}
	c := &l.launches.of[at]
	if c.predicted > 0 && c.had > 0 {
		// One that had the GPU for more than twice as long as it was to stood still, or
		// the prediction was wrong.
		l.had += float64(c.had + l.waited)
		l.lost += float64(min(c.had+l.waited-c.predicted-c.cost, c.predicted))
	}
	l.waited = 0
	if l.had > lossWindow {
		l.had, l.lost = l.had/2, l.lost/2
	}
}

// evict takes in that st.Launches[i] is told to leave.
func (l *losses) evict(i int, launch *Launch) {
	c := &l.launches.of[i]
	c.cost += launch.cost()
	c.leaving = true
}

// leaving reports whether st.Launches[i] was told to leave and has not.
func (l *losses) leaving(i int) bool { return l.launches.of[i].leaving }

// leave is what is left of a bound for evictions.
func (l *losses) leave(bound float64) float64 {
	if l.had <= lossPrior {
		return bound
	}
	return max(aimed*bound-max(l.lost, 0)/l.had, leastLeft*bound)
}
