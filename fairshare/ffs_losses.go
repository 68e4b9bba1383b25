package fairshare

import "time"

// losses measures what [fairFirst] loses of the GPU's time beyond the expected cost of its
// evictions. A launch whose length is known has, from its first turn to its end, that much GPU
// time, its evictions, and what is lost besides: the GPU waits for the host between launches, and
// an eviction may cost more than expected.
type losses struct {
	launches launchTable[launchCosts]
	served   LaunchID      // whose time it has been since the last call; 0: no launch's
	waited   time.Duration // time waiting for launches since one ended
	// had is the time that ended launches had, and lost the part of it that was lost beyond the
	// expected cost of their evictions. Newer launches weigh more.
	had, lost float64
}

// launchCosts is the record of a launch.
type launchCosts struct {
	had, cost, predicted time.Duration
	leaving              bool // told to leave, and has not
}

// lossWindow is how much time of ended launches is remembered. It begins with lossPrior, in which
// nothing was lost.
const (
	// lossWindow is how much of the time of launches that have ended is remembered. It begins with
	// lossPrior, in which nothing was lost.
	lossWindow, lossPrior = float64(time.Second), float64(100 * time.Millisecond)
	// leastLeft is the part of max_overhead that is always left for evictions, however much is lost
	// besides: a wrong prediction must not stop the taking of turns.
	leastLeft = 0.2
	// aimed is the part of max_overhead that is aimed at if losses are measured: they vary, and the
	// bound must hold.
	aimed = 0.9
)

// pass notes that time has passed in which the GPU belonged to a guest. Time is not lost if no
// other guest waited.
func (l *losses) pass(d time.Duration, alone bool) {
	if at := l.launches.find(l.served, 0); l.served != 0 && at >= 0 {
		l.launches.of[at].had += d
	} else if !alone {
		l.waited += d
	}
}

// sync follows the launches of the newest state, and one that has ended.
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
		// A launch that had the GPU for more than twice its predicted time stood still, or the
		// prediction was wrong.
		l.had += float64(c.had + l.waited)
		l.lost += float64(min(c.had+l.waited-c.predicted-c.cost, c.predicted))
	}
	l.waited = 0
	if l.had > lossWindow {
		l.had, l.lost = l.had/2, l.lost/2
	}
}

// evict notes that st.Launches[i] is told to leave.
func (l *losses) evict(i int, launch *Launch) {
	c := &l.launches.of[i]
	c.cost += launch.cost()
	c.leaving = true
}

// leaving reports whether st.Launches[i] was told to leave and has not.
func (l *losses) leaving(i int) bool { return l.launches.of[i].leaving }

// allowed returns the part of a bound that is left for evictions.
func (l *losses) allowed(bound float64) float64 {
	if l.had <= lossPrior {
		return bound
	}
	return max(aimed*bound-max(l.lost, 0)/l.had, leastLeft*bound)
}
