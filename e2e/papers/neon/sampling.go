package neon

import (
	"slices"
	"time"
)

// Config configures [Sampling]. The zero value of each field stands for its default.
type Config struct {
	// Alone is how long each owner runs by itself in a sampling phase: 5 ms.
	Alone time.Duration
	// FreeRun is how long all run together after it, for each owner: five times Alone, which is the
	// ratio of LoGA §5.1.
	FreeRun time.Duration
	// Poll is the time between two checks for completions: 1 ms (LoGA §2.3).
	Poll time.Duration
	// DrainAtMost ends a draining phase in which a command doesn't end: 100 ms.
	DrainAtMost time.Duration
}

// PerChannels returns the configuration where each guest has so many channels: 1 ms of sampling and
// 5 ms of free run for each channel (LoGA §5.1).
func PerChannels(channels int) Config {
	n := time.Duration(channels)
	return Config{Alone: n * time.Millisecond, FreeRun: 5 * n * time.Millisecond}
}

// RoundLength returns the length of a round of so many owners without the draining in it: their
// free run, and each one's time alone.
func (c Config) RoundLength(owners int) time.Duration {
	return time.Duration(owners) * (c.FreeRun + c.Alone)
}

// Sampling is NEON's accounting (LoGA §2.3). Each round it suspends all owners and waits until the
// commands that were fetched have ended (draining). Then it lets each owner run alone for a while
// and polls for completions, and after that lets those that the policy allows run freely. An
// owner's mean command length while it was alone decides which part of the free run it is charged.
//
// It is a state machine without a clock: Step is called at the instants that it asks for.
type Sampling struct {
	config Config
	gate   Gate
	allow  func(sampled []Sample) []Owner

	state   state
	begun   time.Duration // of the state
	samples []Sample
	current int  // index of the owner that runs alone
	ending  bool // its time is over, but not its commands
	seen    Progress
	busy    bool
	since   time.Duration // when the current owner's oldest unfinished command began, if busy
	allowed []Owner       // in the free run; nil before the first sampling
	round   Round
}

// Round is what one round of sampling came to.
type Round struct {
	// FreeRun, Drain and Alone are the lengths of its three parts, in that order. The first round
	// has no free run.
	FreeRun, Drain, Alone time.Duration
	// Samples are in the gate's order of owners.
	Samples []Sample
}

// Sample is what was found out about one owner.
type Sample struct {
	Owner Owner
	// Commands is how many were seen to complete while the owner ran alone, and Busy the time that
	// they took, as far as polling for completions tells.
	Commands uint64
	Busy     time.Duration
	// Charged is Busy and the owner's part of the free run before, in proportion to the mean
	// command lengths of the owners that were allowed to run in it.
	Charged time.Duration
}

// mean returns the mean command length, or zero if no command was seen.
func (s *Sample) mean() time.Duration {
	if s.Commands == 0 {
		return 0
	}
	return s.Busy / time.Duration(s.Commands)
}

type state uint8

const (
	free state = iota
	draining
	alone
)

// NewSampling returns a sampling in its free run. allow returns which owners may run in the next
// free run, once all have been sampled. A nil allow lets all run.
func NewSampling(c Config, gate Gate, allow func([]Sample) []Owner) *Sampling {
	setDefault(&c.Alone, 5*time.Millisecond)
	setDefault(&c.FreeRun, 5*c.Alone)
	setDefault(&c.Poll, time.Millisecond)
	setDefault(&c.DrainAtMost, 100*time.Millisecond)
	if allow == nil {
		allow = func(sampled []Sample) (all []Owner) {
			for i := range sampled {
				all = append(all, sampled[i].Owner)
			}
			return all
		}
	}
	return &Sampling{config: c, gate: gate, allow: allow}
}

func setDefault(field *time.Duration, value time.Duration) {
	if *field == 0 {
		*field = value
	}
}

// Step continues at time now and returns when it is to be called next. If a sampling phase has just
// ended, round is what it and the free run before it came to, valid until the next call. Otherwise
// round is nil.
func (s *Sampling) Step(now time.Duration) (next time.Duration, round *Round) {
	switch s.state {
	case free:
		if s.allowed != nil {
			if until := s.begun + s.freeRun(); now < until {
				return until, nil
			}
			s.round.FreeRun = now - s.begun
		}
		s.state, s.begun = draining, now
		s.gate.Admit(nil)
	case draining:
		if s.gate.Drained() || now-s.begun >= s.config.DrainAtMost {
			s.round.Drain, s.round.Alone = now-s.begun, 0
			s.samples = s.samples[:0]
			for _, o := range s.gate.Owners() {
				s.samples = append(s.samples, Sample{Owner: o})
			}
			s.current = -1
			round = s.nextAlone(now)
		}
	case alone:
		s.poll(now)
		switch lasted := now - s.begun; {
		case lasted < s.config.Alone:
		case s.gate.Drained() || lasted >= s.config.Alone+s.config.DrainAtMost:
			s.round.Alone += lasted
			round = s.nextAlone(now)
		case !s.ending:
			s.ending = true // what it has submitted must not run beside the next owner's
			s.gate.Admit(nil)
		}
	}
	if s.state == free {
		return s.begun + s.freeRun(), round
	}
	return now + s.config.Poll, round
}

// freeRun grows with the number of owners, as the sampling phase does.
func (s *Sampling) freeRun() time.Duration {
	return s.config.FreeRun * time.Duration(max(len(s.samples), 1))
}

// nextAlone lets the next owner run by itself. After the last one it ends the sampling phase and
// begins the free run.
func (s *Sampling) nextAlone(now time.Duration) *Round {
	s.current++
	if s.current < len(s.samples) {
		s.state, s.begun, s.ending = alone, now, false
		o := s.samples[s.current].Owner
		s.seen = s.gate.Progress(o)
		s.busy = s.seen.Submitted > s.seen.Completed
		s.since = now
		s.gate.Admit([]Owner{o})
		return nil
	}
	s.charge()
	s.allowed = append([]Owner{}, s.allow(s.samples)...)
	s.state, s.begun = free, now
	s.gate.Admit(s.allowed)
	return &s.round
}

// poll adds the completions since the last poll. A command began when it was submitted, or when the
// one before it was seen to complete: NEON traps submissions while it samples, but notices
// completions only when it polls.
func (s *Sampling) poll(now time.Duration) {
	o := &s.samples[s.current]
	p := s.gate.Progress(o.Owner)
	if !s.busy && p.Submitted > s.seen.Submitted {
		s.busy, s.since = true, max(p.LastSubmit, s.since)
	}
	if completed := p.Completed - s.seen.Completed; completed > 0 {
		o.Commands += completed
		o.Busy += now - s.since
		s.since = now
		s.busy = p.Submitted > p.Completed
	}
	s.seen = p
}

// charge divides the free run before the sampling phase among the owners that ran in it.
func (s *Sampling) charge() {
	var total time.Duration
	for i := range s.samples {
		if slices.Contains(s.allowed, s.samples[i].Owner) {
			total += s.samples[i].mean()
		}
	}
	s.round.Samples = s.samples
	for i := range s.samples {
		o := &s.samples[i]
		o.Charged = o.Busy
		if total > 0 && slices.Contains(s.allowed, o.Owner) {
			o.Charged += time.Duration(float64(s.round.FreeRun) * float64(o.mean()) / float64(total))
		}
	}
}
