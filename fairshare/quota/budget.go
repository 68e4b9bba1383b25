package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AtHard is what happens to a guest whose budget is spent.
type AtHard uint8

const (
	// Hold keeps it from the GPU.
	Hold AtHard = iota
	// Throttle gives it only what others leave over: the weight [ThrottledWeight].
	Throttle
)

var atHardNames = [...]string{"hold", "throttle"}

// String returns the name.
func (a AtHard) String() string {
	if int(a) < len(atHardNames) {
		return atHardNames[a]
	}
	return fmt.Sprintf("AtHard(%d)", uint8(a))
}

// MarshalText implements [encoding.TextMarshaler].
func (a AtHard) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *AtHard) UnmarshalText(b []byte) error {
	i := slices.Index(atHardNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("at-hard %q: want one of %s", b, strings.Join(atHardNames[:], ", "))
	}
	*a = AtHard(i)
	return nil
}

// ThrottledWeight is the weight of a guest that is throttled. It has no guarantee and no priority
// then.
const ThrottledWeight = 0.001

// Budget bounds GPU time in a period. The zero value bounds nothing.
type Budget struct {
	Period Period `json:"period"`
	// Soft is the GPU time from which on the use is reported, and Hard the time that is not
	// exceeded by more than a round. 0 is no such limit.
	Soft   time.Duration `json:"soft_nanos,omitempty"`
	Hard   time.Duration `json:"hard_nanos,omitempty"`
	AtHard AtHard        `json:"at_hard"`
}

// Sanction is what a guest's budgets mean for it.
type Sanction uint8

// The sanctions, in ascending order.
const (
	None Sanction = iota
	Throttled
	Held
)

var sanctionNames = [...]string{"none", "throttled", "held"}

// String returns the sanction's name.
func (s Sanction) String() string {
	if int(s) < len(sanctionNames) {
		return sanctionNames[s]
	}
	return fmt.Sprintf("Sanction(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s Sanction) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Sanction) UnmarshalText(b []byte) error {
	i := slices.Index(sanctionNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("sanction %q: want one of %s", b, strings.Join(sanctionNames[:], ", "))
	}
	*s = Sanction(i)
	return nil
}

// Sanction returns what a level of the budget means.
func (b Budget) Sanction(l Level) Sanction {
	switch {
	case l < OverHard:
		return None
	case b.AtHard == Throttle:
		return Throttled
	}
	return Held
}

// Level is how much of a budget is used.
type Level uint8

// The levels, in ascending order.
const (
	Within Level = iota
	OverSoft
	OverHard
)

var levelNames = [...]string{"within", "soft", "hard"}

// String returns the level's name.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// MarshalText implements [encoding.TextMarshaler].
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *Level) UnmarshalText(b []byte) error {
	i := slices.Index(levelNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("level %q: want one of %s", b, strings.Join(levelNames[:], ", "))
	}
	*l = Level(i)
	return nil
}

// Level returns the level of some use.
func (b Budget) Level(used time.Duration) Level {
	switch {
	case b.Hard > 0 && used >= b.Hard:
		return OverHard
	case b.Soft > 0 && used >= b.Soft:
		return OverSoft
	}
	return Within
}

// maxLimit bounds a limit: the GPU time of a thousand GPUs in a month.
const maxLimit = 1000 * 31 * 24 * time.Hour

// Parse parses a budget: its hard limit and period, then further settings, such as
//
//	10h/day
//	100h/month,soft=80h,at-hard=throttle
//	none/week,soft=5h
//
// or none, which is the zero Budget.
func Parse(s string) (b Budget, err error) {
	if s == "none" {
		return b, nil
	}
	parts := strings.Split(s, ",")
	hard, period, _ := strings.Cut(parts[0], "/")
	if err := b.Period.UnmarshalText([]byte(period)); err != nil {
		return Budget{}, fmt.Errorf("%q: want GPU time and a period, such as 10h/day, 40h/week or 100h/month, or none", parts[0])
	}
	if b.Hard, err = parseLimit(hard); err != nil {
		return Budget{}, err
	}
	for _, part := range parts[1:] {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "soft":
			b.Soft, err = parseLimit(value)
		case "at-hard":
			err = b.AtHard.UnmarshalText([]byte(value))
		default:
			err = fmt.Errorf("%q: want soft=TIME, at-hard=hold or at-hard=throttle", part)
		}
		if err != nil {
			return Budget{}, err
		}
	}
	if b.Hard == 0 && b.Soft == 0 {
		return Budget{}, fmt.Errorf("%q: want a limit, or none alone", s)
	}
	return b, b.Check()
}

func parseLimit(s string) (time.Duration, error) {
	if s == "none" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxLimit {
		return 0, fmt.Errorf("%q: want GPU time above 0 such as 10h or 30m, at most %v, or none", s, maxLimit)
	}
	return d, nil
}

// Check returns an error if the budget is invalid.
func (b Budget) Check() error {
	switch {
	case b.Period > Month || b.AtHard > Throttle:
		return fmt.Errorf("%v, %v: not known", b.Period, b.AtHard)
	case b.Soft < 0 || b.Soft > maxLimit || b.Hard < 0 || b.Hard > maxLimit:
		return fmt.Errorf("limits %v and %v: want GPU time from 0, for none, to %v", b.Soft, b.Hard, maxLimit)
	case b.Hard > 0 && b.Soft > b.Hard:
		return fmt.Errorf("soft limit %v: want at most the hard one, %v", brief(b.Soft), brief(b.Hard))
	}
	return nil
}

// String formats the budget for Parse.
func (b Budget) String() string {
	if b.Hard == 0 && b.Soft == 0 {
		return "none"
	}
	s := "none/" + b.Period.String()
	if b.Hard > 0 {
		s = brief(b.Hard) + "/" + b.Period.String()
	}
	if b.Soft > 0 {
		s += ",soft=" + brief(b.Soft)
	}
	if b.AtHard != Hold {
		s += ",at-hard=" + b.AtHard.String()
	}
	return s
}

// brief formats a time as people write it: 10h in place of 10h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}
