package accounting

import (
	"fmt"
	"time"
)

// Config says how the GPU is watched. The zero value of each field stands for
// the default named there.
type Config struct {
	// Poll and Quiet are the mean lengths of a polling phase and of the quiet
	// phase after it, for each active guest: 1 ms and 5 ms (LoGA §5.1). They, Round and
	// Piece are a second at most.
	Poll, Quiet time.Duration
	// Round caps the mean of polling and quiet phase together, 24 ms; with more
	// guests both phases shrink by the same factor, so that their ratio, and
	// with it accuracy and CPU time, stays (LoGA §3.3). Negative: no cap, as
	// LoGA had it.
	Round time.Duration
	// Piece is about how long a stretch of polling is: a polling phase is cut
	// into such pieces, spread over the round. 100 µs by default; negative: in
	// one, followed by one quiet phase, as LoGA had it and as its baselines need.
	Piece time.Duration
	// Jitter is how much of its part of the round a piece may move about in: all
	// of it, 1, by default, and half where the phase is in one, since quiet phases
	// would get so long that decisions come late; negative: none. Lengths keep
	// their mean. Without it, periodic work can hide from the sampler.
	Jitter float64
	// Seed makes the jitter repeatable.
	Seed uint64
	// Full polls all the time: there is no quiet phase (LoGA §5.4).
	Full bool
	// Scale says what phase lengths grow with.
	Scale Scale
	// Idle says how an idle engine is told from a busy one.
	Idle IdleMode
	// Tick is the time between two polls in simulated time: 1 µs, LoGA's
	// polling loop. Live, the loop is as fast as the hardware answers.
	Tick time.Duration
	// Gap is the least time between two polls that counts as a gap: 20 µs.
	Gap time.Duration
}

// Scale is what the phases' lengths grow with.
type Scale uint8

const (
	// ByActive counts guests that had work. A guest can't inflate it without
	// using the GPU.
	ByActive Scale = iota
	// ByAllocated counts allocated channels, as LoGA did (§5.1).
	ByAllocated
)

// IdleMode is how idle is told from busy (LoGA §4.1).
type IdleMode uint8

const (
	// IdleByBusy trusts the engine's busy bit.
	IdleByBusy IdleMode = iota
	// IdleByEntry trusts the channel's entry in the channel table, as LoGA
	// did on GPUs whose status showed no busy bit. A source that can't read
	// the table counts as busy while a group is valid.
	IdleByEntry
	// IdleCompared trusts the busy bit, and sums where the entries differ in
	// Phase.EntryOnly and Phase.BusyOnly.
	IdleCompared
)

var idleModeNames = [...]string{"busy", "entry", "compared"}

// String is the mode's name in configuration.
func (m IdleMode) String() string {
	if int(m) < len(idleModeNames) {
		return idleModeNames[m]
	}
	return fmt.Sprintf("IdleMode(%d)", uint8(m))
}

// ParseIdleMode is the inverse of String; empty is IdleByBusy.
func ParseIdleMode(s string) (IdleMode, error) {
	for i, name := range idleModeNames {
		if s == name {
			return IdleMode(i), nil
		}
	}
	if s == "" {
		return IdleByBusy, nil
	}
	return 0, fmt.Errorf("idle mode %q: want one of %q", s, idleModeNames)
}

// WithDefaults returns c with its zero fields replaced by the defaults.
func (c Config) WithDefaults() Config {
	setDefault(&c.Poll, time.Millisecond)
	setDefault(&c.Quiet, 5*time.Millisecond)
	setDefault(&c.Round, 24*time.Millisecond)
	setDefault(&c.Piece, 100*time.Microsecond)
	if c.Piece > 0 {
		setDefault(&c.Jitter, 1)
	}
	setDefault(&c.Jitter, 0.5)
	setDefault(&c.Tick, time.Microsecond)
	setDefault(&c.Gap, 20*time.Microsecond)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// maxPhase bounds each phase: decisions come once a round, and who is ahead by then was
// for all of it. With phases of a second shares hold over a minute at best.
const maxPhase = time.Second

// Validate says what is wrong with a configuration, defaults applied.
func (c Config) Validate() error {
	c = c.WithDefaults()
	for _, p := range []struct {
		name   string
		length time.Duration
	}{{"poll", c.Poll}, {"quiet", c.Quiet}, {"round", c.Round}, {"piece", c.Piece}} {
		if p.length > maxPhase {
			return fmt.Errorf("accounting: %s %v: want at most %v, since decisions come once a round", p.name, p.length, maxPhase)
		}
	}
	switch {
	case c.Poll < 0 || c.Quiet < 0:
		return fmt.Errorf("accounting: poll %v and quiet %v must not be negative", c.Poll, c.Quiet)
	case c.Jitter > 1:
		return fmt.Errorf("accounting: jitter %v: want at most 1, a fraction of the round", c.Jitter)
	case c.Tick < 0 || c.Gap < 0:
		return fmt.Errorf("accounting: tick %v and gap %v must not be negative", c.Tick, c.Gap)
	case c.Scale > ByAllocated:
		return fmt.Errorf("accounting: unknown scale %d", c.Scale)
	case c.Idle > IdleCompared:
		return fmt.Errorf("accounting: unknown idle mode %d", c.Idle)
	}
	return nil
}
