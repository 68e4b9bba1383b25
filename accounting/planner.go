package accounting

import (
	"math"
	"math/rand/v2"
	"time"
)

// Planner plans when to poll: how long a round is, and where the pieces of its polling phase lie.
//
// A round's polling phase is cut into pieces that are spread over the round. The accuracy of a
// sample depends on how much of the time is polled, not on the length of each piece (LoGA §3.3), as
// long as the pieces are independent; and many short pieces are more independent than one long one.
// With pieces of 100 µs instead of one phase of 1 to 4 ms, at a ratio of 1:5, the largest error of
// a guest's share over 10 s, in 720 runs of 1 to 16 guests, fell from 13.5 points to 1.2, and the
// mean from 0.79 to 0.14. Pieces also show all of a round, not only its end, if the mix of work
// changes within it.
//
// Each piece lies at a different place within its part of the round. The places fill the part
// evenly (by an additive recurrence), with a little randomness added. Work that takes turns on the
// GPU is periodic, and such a sample of it is about twice as good as one with independently drawn
// lengths. A period that happens to be in step with the recurrence is measured no better than
// before, hence the randomness.
type Planner struct {
	config      Config
	rand        *rand.Rand
	turn        float64 // of the recurrence, in [0, 1)
	place       float64 // where the newest piece lies
	left        int     // pieces of the round
	afresh      bool    // the next round's first piece does not depend on the piece before
	poll, pause time.Duration
}

// NewPlanner returns a planner for c. Its lengths follow from c.Seed alone.
func NewPlanner(c Config) *Planner {
	c = c.WithDefaults()
	r := rand.New(rand.NewPCG(c.Seed, 0x4c6f4741))
	start := r.Float64()
	return &Planner{config: c, rand: r, turn: start, place: start}
}

// Load is what phases are scaled by.
type Load struct {
	// Active is how many guests had work lately. It should follow them slowly, over a second or so:
	// a guest that has work in every other round would otherwise set the length of only those
	// phases that see it, and be counted too much or too little. Allocated is how many channels all
	// guests have.
	Active, Allocated int
}

// While no guest has had work lately the quiet phase lasts idleQuiet, and a polling phase and its
// pieces are shorter by a factor of idleDivisor. Polling then costs a thousandth of a processor
// instead of a sixth. Work that arrives is seen within a piece's pause, and the next round has the
// usual length.
const (
	idleQuiet   = 200 * time.Millisecond
	idleDivisor = 5
)

// Mean returns the mean length of the phases under a load. With Full there is no quiet phase, and a
// polling phase is as long as a round.
func (p *Planner) Mean(l Load) (poll, quiet time.Duration) {
	n := p.scale(l)
	poll, quiet = p.config.Poll, p.config.Quiet
	if p.unused(l) {
		return poll / idleDivisor, max(quiet, idleQuiet)
	}
	n = max(n, 1)
	round := poll + quiet
	if limit := p.config.Round; limit > 0 && time.Duration(n) > limit/round {
		poll = time.Duration(float64(poll) / float64(round) * float64(limit))
		quiet = limit - poll
	} else {
		poll, quiet = time.Duration(n)*poll, time.Duration(n)*quiet
	}
	if p.config.Full {
		return poll + quiet, 0
	}
	return poll, quiet
}

// Interval returns the mean time from one piece of polling to the next under a load. With Full it
// is 0: nothing passes unseen.
func (p *Planner) Interval(l Load) time.Duration {
	poll, quiet := p.Mean(l)
	if quiet == 0 {
		return 0
	}
	return (poll + quiet) / time.Duration(p.pieces(l, poll))
}

// pieces returns how many pieces a polling phase of some length has under a load.
func (p *Planner) pieces(l Load, poll time.Duration) int {
	piece := p.config.Piece
	if p.unused(l) {
		piece /= idleDivisor
	}
	if piece <= 0 {
		return 1
	}
	return int(max((poll+piece/2)/piece, 1))
}

// scale returns the factor by which phases are longer.
func (p *Planner) scale(l Load) int {
	if p.config.Scale == ByAllocated {
		return l.Allocated
	}
	return l.Active
}

// unused reports whether no guest has work.
func (p *Planner) unused(l Load) bool { return p.scale(l) == 0 && !p.config.Full }

// Piece is a piece of polling and the pause before it.
type Piece struct {
	Pause, Poll time.Duration
	// Last reports whether the round ends with it.
	Last bool
}

// Next draws the next piece of a round. The load has an effect only where a round begins.
func (p *Planner) Next(l Load) Piece {
	if p.left == 0 {
		poll, quiet := p.Mean(l)
		p.left = 1
		if quiet > 0 {
			p.left = p.pieces(l, poll)
		}
		p.poll, p.pause = poll/time.Duration(p.left), quiet/time.Duration(p.left)
		if p.afresh && p.left > 1 {
			p.begin(poll + quiet)
		}
		p.afresh = false
	}
	p.left--
	return p.jittered(Piece{Pause: p.pause, Poll: p.poll, Last: p.left == 0})
}

// Restart drops the rest of the round: the next piece begins another one. If rounds have several
// pieces, the first one lies anywhere in its part of the round.
//
// Verdicts come at the end of a round, so that what runs changes there. If pieces went on as before,
// they would always be at the same few distances from that: for 300 µs after each verdict nothing was
// ever seen, and two guests with kernels of 1 and 1.5 ms were off by 1.6 points over 10 s. It must be
// drawn, too: work that follows from the verdicts is in step with any recurrence.
func (p *Planner) Restart() { p.left, p.afresh = 0, true }

// begin places the first piece of a round of some length. A round ends with its last piece, half a
// part early on average, so its parts are longer by that.
func (p *Planner) begin(round time.Duration) {
	jitter := max(p.config.Jitter, 0)
	whole := (float64(round) - jitter*float64(p.poll)) / (float64(p.left) - jitter/2)
	p.pause = time.Duration(whole) - p.poll
	p.turn = p.rand.Float64()
	p.place = 1 - float64(p.poll)/whole // as if one had ended just now
}

// jittered moves a piece within its part of the round.
func (p *Planner) jittered(piece Piece) Piece {
	if p.config.Jitter <= 0 {
		return piece
	}
	before := p.place
	p.turn = math.Mod(p.turn+plastic, 1)
	p.place = p.turn + noise*(p.rand.Float64()-0.5)
	whole := piece.Pause + piece.Poll
	shift := time.Duration(p.config.Jitter * (p.place - before) * float64(whole))
	if piece.Pause == 0 {
		piece.Poll = max(whole+shift, 1)
		return piece
	}
	mean := piece.Pause
	piece.Poll = max(time.Duration(float64(piece.Poll)*(1+noise*p.config.Jitter*(p.rand.Float64()-0.5))), 1)
	piece.Pause = max(whole+shift-piece.Poll, mean/minPause)
	return piece
}

const (
	// plastic is the fractional part of 1/ρ, where ρ is the plastic number (ρ³ = ρ+1). Its
	// multiples fill [0, 1) evenly, and are less often in step with a few periods of the load than
	// the golden ratio's.
	plastic = 0.7548776662466927
	// noise is the random part of a piece's place and length.
	noise = 0.05
	// minPause bounds how short a pause is drawn, as a divisor of its mean, if polling fills most
	// of a round.
	minPause = 8
)
