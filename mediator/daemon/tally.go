package daemon

import (
	"math"
	"time"

	"vgpud/accounting"
)

// tally is what one GPU's rounds came to. It is pure: the share tells it what
// was seen.
type tally struct {
	// unwatched is quiet time that is not yet charged to anybody.
	unwatched time.Duration

	busy, idle, switching time.Duration // watched, and estimated for the rest
	watched               time.Duration
	switches, rounds      uint64
	polls, gaps           uint64
	gapTime, cpu          time.Duration
	// lately is the part of watched time in which the GPU executed, newer time
	// weighing more.
	lately float64
}

// memory is how long a share or a ratio "lately" remembers.
const memory = 2 * time.Second

// fade is what is kept of an old value after d.
func fade(d time.Duration) float64 { return math.Exp(-float64(d) / float64(memory)) }

// polled takes in a polling phase, and with it the quiet time before it, which
// is taken to have been like it: verdicts change only at the end of a polling
// phase, so that the same guests ran in both. Only the commands that held guests
// had left differ. known is how much of the quiet time these are known to have
// taken, and held how much of the phase. scale is what the time of a guest that
// was not held stands for.
func (t *tally) polled(p *accounting.Phase, known, held time.Duration) (scale float64) {
	t.watch(p)
	t.rounds++
	t.know(known)
	length := p.Length()
	keep := fade(length + t.unwatched)
	if length > 0 {
		t.lately = keep*t.lately + (1-keep)*float64(p.Busy())/float64(length)
	}
	sample := length - held
	if sample <= 0 {
		return 1 // nothing to go by: the quiet time waits for the next phase
	}
	rest := float64(t.unwatched) / float64(sample)
	t.busy += time.Duration(rest * float64(p.Busy()-held))
	t.idle += time.Duration(rest * float64(p.Idle))
	t.switching += time.Duration(rest * float64(p.Switching))
	t.switches += uint64(math.Round(rest * float64(p.Switches)))
	t.unwatched = 0
	return 1 + rest
}

// know takes in how much of the unwatched time is known to have been busy.
func (t *tally) know(busy time.Duration) {
	busy = min(busy, t.unwatched)
	t.busy += busy
	t.unwatched -= busy
}

// quieted takes in a quiet phase.
func (t *tally) quieted(q *accounting.Quiet) {
	t.watch(&q.Watched)
	t.unwatched += max(q.Unwatched, 0)
}

// watch takes in time that was watched.
func (t *tally) watch(p *accounting.Phase) {
	t.watched += p.Length()
	t.busy += p.Busy()
	t.idle += p.Idle
	t.switching += p.Switching
	t.switches += p.Switches
	t.polls += p.Polls
	t.gaps += p.Gaps
	t.gapTime += p.GapTime
	t.cpu += p.CPU
}
