package accounting

import (
	"math"
	"math/rand/v2"
	"time"
)

// Planner says when to poll: how long a round is, and where in it the pieces of
// its polling phase are.
//
// A round's polling phase is cut into pieces that are spread over the round. What
// a sample is worth depends on what part of the time is polled, and not on the
// length of a stretch (LoGA §3.3), as long as stretches show independent things;
// and many short ones show more of them than one long one. With pieces of 100 µs
// instead of one phase of 1 to 4 ms, 1:5, the largest error of a guest's share
// over 10 s, in 96 loads of 1 to 16 guests, fell from 4.8 points to 0.4. It also
// lets all of a round be seen, and not only its end, when the mix changes within.
//
// Each piece is put at another place of its part of the round, such that those
// places fill it evenly (by an additive recurrence) with a little randomness on
// top. Work that the GPU does in turns is periodic, and a sample of it drawn so
// is about twice as good as one whose lengths are drawn independently. A period
// that happens to be in step with the recurrence is measured no better than
// before, so the noise stays.
type Planner struct {
	config      Config
	rand        *rand.Rand
	turn        float64 // of the recurrence, in [0, 1)
	place       float64 // where the newest piece was put
	left        int     // pieces of the round
	poll, pause time.Duration
}

// NewPlanner returns a planner for c; its lengths follow from c.Seed alone.
func NewPlanner(c Config) *Planner {
	c = c.WithDefaults()
	r := rand.New(rand.NewPCG(c.Seed, 0x4c6f4741))
	start := r.Float64()
	return &Planner{config: c, rand: r, turn: start, place: start}
}

// Load is what phases are scaled by.
type Load struct {
	// Active is how many guests had work lately. It should follow them slowly,
	// over a second or so: a guest that has work in one round and none in the
	// next would otherwise set the length of just those phases that see it, and
	// be counted too much or too little. Allocated is how many channels all
	// guests have.
	Active, Allocated int
}

// While no guest has had work lately the quiet phase is idleQuiet, and a polling
// phase and its pieces are shorter by idleThin: then polling costs a thousandth
// of a processor instead of a sixth. Work that comes is seen within a piece's
// pause, and the next round is of the usual length.
const (
	idleQuiet = 200 * time.Millisecond
	idleThin  = 5
)

// Mean is the mean length of the phases under a load. With Full there is no
// quiet phase, and a polling phase is as long as a round.
func (p *Planner) Mean(l Load) (poll, quiet time.Duration) {
	n := p.scale(l)
	poll, quiet = p.config.Poll, p.config.Quiet
	if p.unused(l) {
		return poll / idleThin, max(quiet, idleQuiet)
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

// scale is what phases are longer by.
func (p *Planner) scale(l Load) int {
	if p.config.Scale == ByAllocated {
		return l.Allocated
	}
	return l.Active
}

// unused is whether there is hardly anything to look for.
func (p *Planner) unused(l Load) bool { return p.scale(l) == 0 && !p.config.Full }

// Piece is a stretch of polling and the pause before it.
type Piece struct {
	Pause, Poll time.Duration
	// Last is whether the round ends with it.
	Last bool
}

// Next draws the next piece of a round. The load counts where a round begins.
func (p *Planner) Next(l Load) Piece {
	if p.left == 0 {
		poll, quiet := p.Mean(l)
		p.left = 1
		piece := p.config.Piece
		if p.unused(l) {
			piece /= idleThin
		}
		if piece > 0 && quiet > 0 {
			p.left = int(max((poll+piece/2)/piece, 1))
		}
		p.poll, p.pause = poll/time.Duration(p.left), quiet/time.Duration(p.left)
	}
	p.left--
	return p.jittered(Piece{Pause: p.pause, Poll: p.poll, Last: p.left == 0})
}

// Restart drops what is left of the round: the next piece begins another.
func (p *Planner) Restart() { p.left = 0 }

// jittered moves a piece about.
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
	// plastic is the fractional part that 1/ρ has, ρ being the plastic number
	// (ρ³ = ρ+1). Its multiples fill [0, 1) evenly, and those of a few periods
	// of the load combined with it less unluckily than the golden ratio's.
	plastic = 0.7548776662466927
	// noise is the random part of a piece's place and length.
	noise = 0.05
	// minPause bounds how short a pause is drawn, as a divisor of its mean, where
	// polling fills most of a round.
	minPause = 8
)
