package fairshare

import (
	"math"
	"slices"
	"time"
)

// usage is what a guest made of the GPU lately, from which follows how much of it
// the guest could use.
type usage struct {
	// used and dry are GPU time used and time without work, in newer phases more
	// than in older ones. demand follows from them.
	used, dry float64
	// time is likewise all time, and unused that in which the guest had work, was not
	// suspended, and the GPU was idle all the same, though others had a use for it.
	time, unused float64
	// steady is for how long it has had work with next to no break, since what that came
	// to, and away is for how long it has had none.
	steady time.Duration
	since  struct{ used, dry, time float64 }
	away   time.Duration
	// worked is for how long it had work, lull at the most, less what its pauses since
	// then count for.
	worked time.Duration
	// shown is the part of the GPU that the guest used when it last had the GPU for itself while others with work were
	// suspended, until forgets from now.
	shown   float64
	forgets time.Duration
	// met is whether it has had work ever.
	met bool
}

// memory is for how long what a guest did counts in its demand: what is older
// weighs less than 1/e.
const memory = 250 * time.Millisecond

// steadyRounds is how many rounds a guest must have work with next to no break for what it
// was like before to be forgotten.
const steadyRounds = 2

// lull is for how long a guest must be away for what it was like before to be forgotten.
const lull = memory / 5

// spell is what is known of a guest's time in a phase.
type spell struct {
	// used is GPU time, and left that in which it had the GPU for itself and did not use
	// it; contended is whether others had a use for that.
	used, left float64
	contended  bool
	// left stands for factor times the phase. round is a round's mean length.
	factor        float64
	length, round time.Duration
	// turns reports whether the hardware takes turns by time slices.
	turns bool
	// alone reports whether all others with work were suspended, and there are some.
	alone bool
}

// observe takes in what the guest did in a phase, of which part was watched. It returns
// what of left the guest had work in, where others had a use for it.
//
// What a guest was like before it was away for long is forgotten: the pause says nothing
// about what it is like now. The same holds for the phase in which it is back, or has work
// for the first time, of which nobody knows how much was still the pause: a program that
// pauses 800 µs after each kernel looked like one that hardly needs the GPU for a quarter
// of a second, and nobody waited for it.
//
// A shorter pause counts as time without work for no longer than the guest had worked
// before. What little a guest has of the GPU while it waits for its turns is next to nothing
// beside a single pause, which then says what all of it is like: one that began with short
// kernels 20 ms after another program of its had ended was waited for after fifteen rounds.
//
// What was left to it and not used is not forgotten, neither after some steady rounds nor
// after a pause, and only fades: who always has work that needs no GPU is as steady as can
// be, and the others would be suspended for it anew every few rounds, or after each pause.
// Nor does it count, or fade, while nobody else has a use for the GPU: who loads what it
// computes with has work all along, too, and was taken for one that hardly needs the GPU
// for up to two thirds of a second after that. Who only pretends is found out as soon as
// others are suspended.
func (u *usage) observe(g *Guest, s spell) (wasted float64) {
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
	dry := float64(g.NoWork)
	switch {
	case !g.Active:
		pause := min(length, u.worked)
		u.worked -= pause
		dry, s.left = float64(pause), 0
	case g.NoWork == 0 && !g.Backlogged:
		// Without work all along; or at the one instant that was looked at,
		// which is right on average.
		dry = float64(length)
	case s.turns:
		dry = awake(g, length, dry)
	}
	if g.Active {
		u.worked = min(u.worked+length, lull)
	}
	before := u.steady
	if dry > saturating*float64(length) || !g.Active {
		u.steady, u.since = 0, struct{ used, dry, time float64 }{}
	} else {
		u.steady += length
		u.since.used += s.used
		u.since.dry += dry
		u.since.time += float64(length)
	}
	keep := math.Exp(-float64(length) / float64(memory))
	u.time = keep*u.time + float64(length)
	u.used = keep*u.used + s.used
	u.dry = keep*u.dry + dry
	u.show(g, &s)
	if s.contended || !g.Active {
		wasted = max(s.left-s.factor*dry, 0) // some of it is in there
		u.unused = keep*u.unused + wasted
	}
	if enough := steadyRounds * s.round; before < enough && u.steady >= enough {
		u.used, u.dry, u.time = u.since.used, u.since.dry, u.since.time
	}
	return wasted
}

// A guest that waits for its turn for longer than sleepsAfter sleeps, and so does its executor. Waking both delays its next
// launch by wakeup: on an H100 a program with kernels of 6 µs took 145 µs from the end of one to the next launch where it
// waited for four other guests' turns in between, and 7 µs where it was alone.
const (
	sleepsAfter = 200 * time.Microsecond
	wakeup      = 140 * time.Microsecond
)

// awake returns the time without work in a phase, less what waking took after each turn. Without that, a guest with short
// kernels that waits for its turns seems to need next to nothing of the GPU.
func awake(g *Guest, length time.Duration, dry float64) float64 {
	turns := float64(g.Runs)
	if waited := float64(length-g.Used) - dry; waited <= turns*float64(sleepsAfter) {
		return dry
	}
	return max(dry-turns*float64(wakeup), 0)
}

// known is whether there is anything to tell by what the guest is like.
func (u *usage) known() bool { return u.time > 0 }

// demand is the part of the GPU that the guest would use if it had the GPU for
// itself: what it waits for its turn doesn't count. A guest that is never
// without work demands all of it.
func (u *usage) demand() float64 {
	idle := u.dry + u.unused
	if idle == 0 {
		return 1
	}
	return max(u.used/(u.used+idle), u.shown)
}

// showsFor is for how long counts what a guest used when it had the GPU for itself. What it uses while it waits for its
// turns says less: how much longer its pauses get by sleeping differs from host to host.
const showsFor = time.Second

// show takes in how much of the GPU the guest used in a phase in which it had the GPU for itself.
func (u *usage) show(g *Guest, s *spell) {
	if s.turns && s.alone && !g.Suspended && g.Active {
		u.shown, u.forgets = s.used/(s.factor*float64(s.length)), showsFor
		return
	}
	if u.forgets -= s.length; u.forgets <= 0 {
		u.shown = 0
	}
}

// left is how much of a phase, of which part was watched, the GPU was the
// guest's for the taking. Where that is little it is the gaps between the
// kernels of one that saturates the GPU.
func left(g *Guest, watched time.Duration) float64 {
	if g.Suspended || float64(g.Idle) <= saturating*float64(watched) {
		return 0
	}
	return float64(g.Idle)
}

// contenders is how many guests used the GPU in a phase, or had work and were kept from it.
func contenders(st *State) (n int) {
	for i := range st.Guests {
		if st.Guests[i].contends() {
			n++
		}
	}
	return n
}

// contends is whether the guest is among them.
func (g *Guest) contends() bool { return g.Active && (g.Used > 0 || g.Late > 0 || g.Suspended) }

// heldBack is whether any guest with work is suspended.
func heldBack(st *State) bool {
	return slices.ContainsFunc(st.Guests, func(g Guest) bool { return g.Active && g.Suspended })
}

// othersContend is whether guests other than g are among so many contenders.
func othersContend(g *Guest, contenders int) bool {
	return contenders > 1 || contenders == 1 && !g.contends()
}

// reckoning says what guests used in phases of which not all was watched: quiet
// time that nobody measured is taken to have been like the polling phase after
// it, for those guests that were not suspended.
type reckoning struct {
	quiet time.Duration // unwatched, not yet charged to anybody
}

// factor is what a polling phase stands for, in polling phases; it ends the quiet
// time before. held is how much of the phase was used by guests that were
// suspended all through the quiet time, about which it says nothing.
func (r *reckoning) factor(ev *Event, held time.Duration) float64 {
	f := 1.0
	if sample := ev.Length - held; sample > 0 {
		f += float64(r.quiet) / float64(sample)
	}
	r.quiet = 0
	return f
}

// spent is what a guest used in a phase, which stands for factor of its kind where it is
// a polling phase, and what was left to it.
func (r *reckoning) spent(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if ev.Phase == QuietPhase {
		return r.quieted(ev, g)
	}
	return r.polled(ev, g, factor)
}

// polled is what a guest used in a polling phase that stands for factor of its
// kind, and in the quiet time before it, and what was left to it.
func (r *reckoning) polled(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if g.Suspended && !ev.Spread {
		factor = 1
	}
	return factor*float64(g.Used) + float64(g.Late), factor * left(g, ev.Length)
}

// quieted is what a guest is known to have used in a quiet phase; it must have
// been announced by rest.
func (r *reckoning) quieted(ev *Event, g *Guest) (used, unused float64) {
	r.quiet = max(r.quiet-g.Late, 0)
	return float64(g.Used) + float64(g.Late), left(g, ev.Watched)
}

// rest keeps the part of a quiet phase that was not watched for the polling phase
// to come.
func (r *reckoning) rest(ev *Event) { r.quiet += max(ev.Length-ev.Watched, 0) }
