package accounting

import (
	"fmt"
	"time"
)

// Config says how the GPU is polled. The zero value of each field stands for its default.
type Config struct {
	// Poll and Quiet are the mean lengths of a polling phase and of the quiet phase after it, for
	// each active guest: 1 ms and 5 ms (LoGA §5.1). Poll, Quiet, Round and Piece are at most a
	// second.
	Poll, Quiet time.Duration
	// Round caps the mean length of a polling and a quiet phase together, 24 ms. With more guests
	// both phases shrink by the same factor, so that their ratio, and with it accuracy and
	// processor time, stays (LoGA §3.3). Negative: no cap, as in LoGA.
	Round time.Duration
	// Piece is the approximate length of one piece of polling: a polling phase is cut into such
	// pieces, spread over the round. 100 µs by default. Negative: a single piece followed by one
	// quiet phase, as in LoGA, which its baselines need.
	Piece time.Duration
	// Jitter is how far a piece may move within its part of the round. By default it is 1, the
	// whole part, and 0.5 where the phase is in one piece, since quiet phases would otherwise get
	// so long that decisions come late. Negative: none. The mean lengths stay. Without jitter,
	// periodic work can hide from the sampler.
	Jitter float64
	// Seed makes the jitter repeatable.
	Seed uint64
	// Full polls all the time, without a quiet phase (LoGA §5.4).
	Full bool
	// Scale says what the phases' lengths grow with.
	Scale Scale
	// Idle says how an idle engine is told from a busy one.
	Idle IdleMode
	// Tick is the time between two polls in simulated time: 1 µs, as in LoGA's polling loop. The
	// live loop is as fast as the hardware answers.
	Tick time.Duration
	// Gap is the shortest time between two polls that counts as a gap: 20 µs.
	Gap time.Duration
}

// Scale is what the phases' lengths grow with.
type Scale uint8

const (
	// ByActive counts guests that had work. A guest can't inflate it without using the GPU.
	ByActive Scale = iota
	// ByAllocated counts allocated channels, as LoGA did (§5.1).
	ByAllocated
)

// IdleMode is how idle is told from busy (LoGA §4.1).
type IdleMode uint8

const (
	// IdleByBusy trusts the engine's busy bit.
	IdleByBusy IdleMode = iota
	// IdleByEntry trusts the channel's entry in the channel table, as LoGA did on GPUs whose status
	// showed no busy bit. If the source can't read the table, a valid group counts as busy.
	IdleByEntry
	// IdleCompared trusts the busy bit, and sums the time in which the entry differs in
	// Phase.EntryOnly and Phase.BusyOnly.
	IdleCompared
)

var idleModeNames = [...]string{"busy", "entry", "compared"}

// String returns the mode's name in configuration.
func (m IdleMode) String() string {
	if int(m) < len(idleModeNames) {
		return idleModeNames[m]
	}
	return fmt.Sprintf("IdleMode(%d)", uint8(m))
}

// ParseIdleMode is the inverse of String. The empty name is IdleByBusy.
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

// maxPhase bounds each phase. Decisions come once a round, and a guest that is ahead by then was
// ahead for all of it. With phases of a second shares hold over a minute at best.
const maxPhase = time.Second

// Validate returns an error if the configuration is wrong, with defaults applied.
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
