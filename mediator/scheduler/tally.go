package scheduler

import (
	"math"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/launchqueue"
)

// tally sums up one GPU's rounds. It is pure: the scheduler tells it what was seen.
type tally struct {
	// unwatched is quiet time that is not charged to anybody yet.
	unwatched time.Duration

	busy, idle, switching time.Duration // watched, and estimated for the rest
	watched               time.Duration
	switches, rounds      uint64
	polls, gaps           uint64
	gapTime, cpu          time.Duration
	// busyLately is the part of watched time in which the GPU executed; newer time weighs more.
	busyLately float64
}

// memory is the time constant of the averages of what happened lately.
const memory = 2 * time.Second

// decay returns the factor by which an average has faded after d.
func decay(d time.Duration) float64 { return math.Exp(-float64(d) / float64(memory)) }

// polled adds a polling phase, and with it the quiet time before it. That time is taken to have
// been like the phase, since verdicts change only at the end of a polling phase, so that the same
// guests ran in both; only the commands that suspended guests had left differ. known is how much of
// the quiet time these are known to have taken, suspended how much of the phase. scale is what the
// time of a guest that was not suspended stands for.
func (t *tally) polled(p *accounting.Phase, known, suspended time.Duration) (scale float64) {
	t.watch(p)
	t.rounds++
	t.know(known)
	length := p.Length()
	keep := decay(length + t.unwatched)
	if length > 0 {
		t.busyLately = keep*t.busyLately + (1-keep)*float64(p.Busy())/float64(length)
	}
	sample := length - suspended
	if sample <= 0 {
		return 1 // nothing to go by: the quiet time waits for the next phase
	}
	rest := float64(t.unwatched) / float64(sample)
	t.busy += time.Duration(rest * float64(p.Busy()-suspended))
	t.idle += time.Duration(rest * float64(p.Idle))
	t.switching += time.Duration(rest * float64(p.Switching))
	t.switches += uint64(math.Round(rest * float64(p.Switches)))
	t.unwatched = 0
	return 1 + rest
}

// know notes that the GPU is known to have been busy for a part of the unwatched time.
func (t *tally) know(busy time.Duration) {
	busy = min(busy, t.unwatched)
	t.busy += busy
	t.unwatched -= busy
}

// quieted adds a quiet phase.
func (t *tally) quieted(q *accounting.Quiet) {
	t.watch(&q.Watched)
	t.unwatched += max(q.Unwatched, 0)
}

// watch adds time that was watched.
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

// tail follows the commands that a guest had on the GPU when it was suspended.
type tail struct {
	suspended bool
	counted   time.Duration // the executors' count of late time when last seen
	ran       time.Duration // since the suspension, by the executors' count
	charged   time.Duration // of it, as watched or as late
	unwatched time.Duration // since the suspension, and not charged
}

// observe is told the executors' count of time that ran late, how long the guest was watched to
// execute since the last call, and how long nobody watched. It returns how long commands ran
// unwatched. The count comes when a command ends, which may be after it was watched.
//
// The count goes from each command's start to its end. If the GPU took turns in between, with other
// guests or with the guest's own contexts, that is more than the command's own time; so no more is
// charged than passed unwatched.
func (t *tail) observe(suspended bool, count, watched, unwatched time.Duration) (late time.Duration) {
	if suspended && !t.suspended {
		t.ran, t.charged, t.unwatched = 0, 0, 0
	}
	t.suspended = suspended
	t.ran = launchqueue.AddClamped(t.ran, max(count-t.counted, 0))
	t.counted = count
	if suspended {
		t.charged += watched
		t.unwatched += unwatched
	}
	late = min(max(t.ran-t.charged, 0), t.unwatched)
	t.unwatched -= late
	t.charged = max(t.charged, t.ran)
	return late
}
