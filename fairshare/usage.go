package fairshare

import (
	"math"
	"slices"
	"time"
)

// usage is a guest's recent use of the GPU, from which follows how much of the GPU the guest could
// use.
type usage struct {
	// used and dry are GPU time used and time without work. Newer phases count more than older
	// ones. demand follows from them.
	used, noWork float64
	// time is all time, with the same weights, and unused the part of it in which the guest had
	// work and was not suspended, and the GPU was idle all the same, though others had a use for
	// it.
	time, unused float64
	// steady is how long the guest has had work almost without a break, since the sums over that
	// time, and away how long it has had none.
	steady time.Duration
	since  struct{ used, noWork, time float64 }
	away   time.Duration
	// worked is how long it had work, at most lull, less what its pauses since then count for.
	worked time.Duration
	// usedAlone is the part of the GPU that the guest used when it last had the GPU for itself
	// while others with work were suspended. It is forgotten in aloneLeft.
	usedAlone float64
	aloneLeft time.Duration
	// met reports whether it ever had work.
	met bool
}

// memory is how long a guest's use counts in its demand: older use weighs less than 1/e.
const memory = 250 * time.Millisecond

// steadyRounds is how many rounds a guest must have work almost without a break for its earlier use
// to be forgotten.
const steadyRounds = 2

// lull is how long a guest must be away for its earlier use to be forgotten.
const lull = memory / 5

// phaseUse is what is known of a guest's time in a phase.
type phaseUse struct {
	// used is GPU time, and unused the time in which the guest had the GPU for itself and did not
	// use it. contended reports whether others had a use for that time.
	used, unused float64
	contended    bool
	// unused stands for factor times the phase. round is a round's mean length.
	factor        float64
	length, round time.Duration
	// turns reports whether the hardware takes turns by time slices.
	turns bool
	// alone reports whether all others with work were suspended, and there are some.
	alone bool
	// keep is what the phase leaves of earlier use: see fade.
	keep float64
}

// fade returns the factor by which a guest's use has faded after a phase.
func fade(length time.Duration) float64 { return math.Exp(-float64(length) / float64(memory)) }

// observe adds what the guest did in a phase. It returns the part of unused in which the guest had
// work, though others had a use for the GPU.
//
// The use before a long absence is forgotten: the pause says nothing about what the guest is like
// now. The same holds for the phase in which the guest returns, or has work for the first time,
// since it is not known how much of that was still the pause. Otherwise a program that pauses 800
// µs after each kernel looked like one that hardly needs the GPU for a quarter of a second, and no
// guest waited for it.
//
// A shorter pause counts as time without work, but for no longer than the guest had worked before.
// The little GPU time that a guest has while it waits for its turns is next to nothing beside a
// single pause, which would then determine the estimate: a guest that began with short kernels 20
// ms after another program of its own had ended was waited for only after fifteen rounds.
//
// Unused time is not forgotten, neither after some steady rounds nor after a pause, but only fades:
// a guest that always has work which needs no GPU is perfectly steady, and the others would be
// suspended for it again every few rounds, or after each pause. It neither counts nor fades while
// no other guest has a use for the GPU: a guest that loads its data has work all along, too, and
// was considered one that hardly needs the GPU for up to two thirds of a second after that. A guest
// that only pretends to have work is found out as soon as others are suspended.
func (u *usage) observe(g *Guest, s phaseUse) (wasted float64) {
	length := s.length
	switch {
	case !g.Active:
		u.away += length
	case u.away >= lull, !u.met && g.NoWork > 0:
		*u = usage{met: true, unused: u.unused}
		return 0
	default:
		u.met, u.away = true, 0
	}
	noWork := float64(g.NoWork)
	switch {
	case !g.Active:
		pause := min(length, u.worked)
		u.worked -= pause
		noWork, s.unused = float64(pause), 0
	case g.NoWork == 0 && !g.Backlogged:
		// Without work all along, or at the one instant of the observation, which is right on
		// average.
		noWork = float64(length)
	case s.turns:
		noWork = awake(g, length, noWork)
	}
	if g.Active {
		u.worked = min(u.worked+length, lull)
	}
	before := u.steady
	if noWork > saturating*float64(length) || !g.Active {
		u.steady, u.since = 0, struct{ used, noWork, time float64 }{}
	} else {
		u.steady += length
		u.since.used += s.used
		u.since.noWork += noWork
		u.since.time += float64(length)
	}
	keep := s.keep
	u.time = keep*u.time + float64(length)
	u.used = keep*u.used + s.used
	u.noWork = keep*u.noWork + noWork
	u.observeAlone(g, &s)
	if s.contended || !g.Active {
		wasted = max(s.unused-s.factor*noWork, 0) // some of unused is time without work
		u.unused = keep*u.unused + wasted
	}
	if enough := steadyRounds * s.round; before < enough && u.steady >= enough {
		u.used, u.noWork, u.time = u.since.used, u.since.noWork, u.since.time
	}
	return wasted
}

// A guest that waits for its turn for longer than sleepsAfter sleeps, and so does its executor.
// Waking both delays its next launch by wakeup: on an H100 a program with kernels of 6 µs took 145
// µs from the end of one to the next launch where it waited for four other guests' turns in
// between, and 7 µs where it was alone.
const (
	sleepsAfter = 200 * time.Microsecond
	wakeup      = 140 * time.Microsecond
)

// awake returns the time without work in a phase, less what waking took after each turn. Without
// that, a guest with short kernels that waits for its turns seems to need next to nothing of the
// GPU.
func awake(g *Guest, length time.Duration, noWork float64) float64 {
	turns := float64(g.Runs)
	if waited := float64(length-g.Used) - noWork; waited <= turns*float64(sleepsAfter) {
		return noWork
	}
	return max(noWork-turns*float64(wakeup), 0)
}

// known reports whether anything is known of the guest's use.
func (u *usage) known() bool { return u.time > 0 }

// demand returns the part of the GPU that the guest would use if it had the GPU for itself: time
// waiting for its turn doesn't count. A guest that is never without work demands all of it.
func (u *usage) demand() float64 {
	idle := u.noWork + u.unused
	if idle == 0 {
		return 1
	}
	return max(u.used/(u.used+idle), u.usedAlone)
}

// aloneFor is how long the use of a guest that had the GPU for itself counts. Its use while it waits
// for its turns is less telling: how much longer its pauses get by sleeping differs from host to host.
const aloneFor = time.Second

// observeAlone notes which part of the GPU the guest used in a phase in which it had the GPU for
// itself.
func (u *usage) observeAlone(g *Guest, s *phaseUse) {
	if s.turns && s.alone && !g.Suspended && g.Active {
		u.usedAlone, u.aloneLeft = s.used/(s.factor*float64(s.length)), aloneFor
		return
	}
	if u.aloneLeft -= s.length; u.aloneLeft <= 0 {
		u.usedAlone = 0
	}
}

// unusedIdle returns how much of a phase, of which part was watched, the GPU was idle and available
// to the guest. If that is little, it is the gaps between the kernels of a guest that saturates the
// GPU, and the result is 0.
func unusedIdle(g *Guest, watched time.Duration) float64 {
	if g.Suspended || float64(g.Idle) <= saturating*float64(watched) {
		return 0
	}
	return float64(g.Idle)
}

// contenders returns how many guests used the GPU in a phase, or had work and were kept from it.
func contenders(st *State) (n int) {
	for i := range st.Guests {
		if st.Guests[i].contends() {
			n++
		}
	}
	return n
}

// contends reports whether the guest is among the contenders.
func (g *Guest) contends() bool { return g.Active && (g.Used > 0 || g.Late > 0 || g.Suspended) }

// anySuspended reports whether any guest with work is suspended.
func anySuspended(st *State) bool {
	return slices.ContainsFunc(st.Guests, func(g Guest) bool { return g.Active && g.Suspended })
}

// othersContend reports whether guests other than g are among so many contenders.
func othersContend(g *Guest, contenders int) bool {
	return contenders > 1 || contenders == 1 && !g.contends()
}

// estimator estimates what guests used in phases of which not all was watched. Quiet time that was
// not measured is assumed to have been like the polling phase after it, for those guests that were
// not suspended.
type estimator struct {
	quiet time.Duration // unwatched, and not yet charged
}

// factor returns what a polling phase stands for, in polling phases. It ends the quiet time before.
// held is how much of the phase was used by guests that were suspended all through the quiet time,
// so that it says nothing about that.
func (r *estimator) factor(ev *Event, held time.Duration) float64 {
	f := 1.0
	if sample := ev.Length - held; sample > 0 {
		f += float64(r.quiet) / float64(sample)
	}
	r.quiet = 0
	return f
}

// spent returns what a guest used in a phase, and what it left unused. A polling phase stands for
// factor times itself.
func (r *estimator) spent(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if ev.Phase == QuietPhase {
		return r.quieted(ev, g)
	}
	return r.polled(ev, g, factor)
}

// polled returns what a guest used in a polling phase that stands for factor times itself, and in
// the quiet time before it, and what it left unused.
func (r *estimator) polled(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if g.Suspended && !ev.Spread {
		factor = 1
	}
	return factor*float64(g.Used) + float64(g.Late), factor * unusedIdle(g, ev.Length)
}

// quieted returns what a guest is known to have used in a quiet phase, for which rest was called
// before.
func (r *estimator) quieted(ev *Event, g *Guest) (used, unused float64) {
	r.quiet = max(r.quiet-g.Late, 0)
	return float64(g.Used) + float64(g.Late), unusedIdle(g, ev.Watched)
}

// rest keeps the part of a quiet phase that was not watched for the next polling phase.
func (r *estimator) rest(ev *Event) { r.quiet += max(ev.Length-ev.Watched, 0) }
