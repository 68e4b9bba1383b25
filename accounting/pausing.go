package accounting

import "time"

// Pausable is an [EventSource] that can stop recording for a while, since the record costs the GPU
// time at each context switch: 4.9 µs of 142 µs on an H100. A [Recorder] pauses it where the
// executors' reports tell as well who used the GPU, and resumes it to check that they still do.
type Pausable interface {
	EventSource
	// Pause ends the recording. Until Resume, Read returns no records, and Now goes on working.
	Pause() error
	// Resume begins to record again.
	Resume() error
}

// When a record is paused, and for how long.
const (
	// pauseWindow is how long records and reports are compared before a pause, and guessWindow how
	// long reports are looked at before the record is resumed.
	pauseWindow = 300 * time.Millisecond
	guessWindow = 100 * time.Millisecond
	// worthPausing is how many switches a second the record has to cost for a pause: 0.1 % of the
	// GPU's time.
	worthPausing = 250
	// pauseGuessed is the greatest part of the time that may have to be guessed for a pause, and
	// resumeGuessed the part above which the record is resumed. Below 1 % no guest's charge was off
	// by more than 0.6 points of the time on an H100.
	pauseGuessed, resumeGuessed = 0.01, 0.02
	// pauseOff is the greatest difference between what a group is charged by records and by
	// reports, as a part of the time, for a pause, and the greatest part of the time for which
	// contexts that nobody reports about may be on the engine.
	pauseOff = 0.005
	// The record is resumed for a check when it has been paused for firstCheck, and after each
	// successful check twice as late, up to lastCheck.
	firstCheck, lastCheck = 20 * time.Second, 2 * time.Minute
	// Once a pause has ended because reports did not tell enough, no other one begins for
	// firstRest. That is doubled, up to lastRest, each time that the next pause is as short.
	firstRest, lastRest = time.Second, time.Minute
)

// pauser decides when a GPU's record is paused. It has no clock: it goes by the phases that it is
// told of.
type pauser struct {
	paused bool
	start  time.Duration // of the present window
	since  time.Duration // the record was paused or resumed
	check  time.Duration // how long the present pause may last
	rest   time.Duration // how long the record has to be kept, 0 for no longer than a window

	switches   uint64
	guessed    time.Duration
	unreported time.Duration
	off        map[GroupID]time.Duration // charged by reports, less what was charged by records
}

func newPauser(now time.Duration) pauser {
	return pauser{start: now, since: now, check: firstCheck, off: make(map[GroupID]time.Duration)}
}

// begin begins a window.
func (p *pauser) begin(now time.Duration) {
	p.start, p.switches, p.guessed, p.unreported = now, 0, 0, 0
	clear(p.off)
}

// recorded is told of a phase by records, of the same phase by reports alone, and whether contexts
// came or went in it. It reports whether the record is to be paused.
func (p *pauser) recorded(records, reports *Phase, changed bool) bool {
	if changed {
		p.begin(records.End)
		return false
	}
	p.switches += records.Switches
	p.guessed += reports.Guessed
	p.unreported += records.Unreported
	for _, g := range records.Groups {
		p.off[g.Group] -= g.Busy
	}
	for _, g := range reports.Groups {
		p.off[g.Group] += g.Busy
	}
	now := records.End
	length := now - p.start
	if length < pauseWindow {
		return false
	}
	pause := now-p.since >= p.rest && p.tells(length)
	p.begin(now)
	if pause {
		p.paused, p.since = true, now
	}
	return pause
}

// tells reports whether reports alone told in the present window what records did, and the record
// cost enough to be paused.
func (p *pauser) tells(length time.Duration) bool {
	if float64(p.switches) < worthPausing*length.Seconds() || float64(p.guessed) > pauseGuessed*float64(length) {
		return false
	}
	most := time.Duration(pauseOff * float64(length))
	for _, d := range p.off {
		if max(d, -d) > most {
			return false
		}
	}
	return p.unreported <= most
}

// inferred is told of a phase while the record is paused, and whether contexts came or went in it,
// of which the record tells whether they are who they say. It reports whether the record is to be
// resumed.
func (p *pauser) inferred(reports *Phase, changed bool) bool {
	p.switches += reports.Switches
	p.guessed += reports.Guessed
	now := reports.End
	length := now - p.start
	if changed {
		p.rest, p.paused, p.since = 0, false, now
		p.begin(now)
		return true
	}
	guesses := float64(p.guessed) > resumeGuessed*float64(max(length, guessWindow))
	if length < guessWindow && !guesses {
		return false
	}
	checks := now-p.since >= p.check && float64(p.switches) >= worthPausing*length.Seconds()
	switch lasted := now - p.since; {
	case guesses && lasted < firstCheck:
		p.rest, p.check = min(max(2*p.rest, firstRest), lastRest), firstCheck
	case guesses:
		p.rest, p.check = firstRest, firstCheck
	case checks:
		p.rest, p.check = 0, min(2*p.check, lastCheck)
	}
	p.begin(now)
	if guesses || checks {
		p.paused, p.since = false, now
	}
	return guesses || checks
}
