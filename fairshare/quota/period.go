package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Period is a calendar period.
type Period uint8

// The periods.
const (
	Day   Period = iota
	Week         // from Monday on
	Month        // from the first day on
)

var periodNames = [...]string{"day", "week", "month"}

// String returns the period's name.
func (p Period) String() string {
	if int(p) < len(periodNames) {
		return periodNames[p]
	}
	return fmt.Sprintf("Period(%d)", uint8(p))
}

// MarshalText implements [encoding.TextMarshaler].
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Period) UnmarshalText(b []byte) error {
	i := slices.Index(periodNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("period %q: want one of %s", b, strings.Join(periodNames[:], ", "))
	}
	*p = Period(i)
	return nil
}

// Bounds returns when the period around an instant began, and when the next one begins, by the
// calendar of the instant's time zone.
func (p Period) Bounds(t time.Time) (from, to time.Time) {
	year, month, day := t.Date()
	days, months := 0, 0
	switch p {
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
		days = 7
	case Month:
		day, months = 1, 1
	default:
		days = 1
	}
	at := func(month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
	}
	return at(month, day), at(month+time.Month(months), day+days)
}

// Starts are when the present day, week and month began, by [Period].
type Starts [3]time.Time

// Calendar tells when periods begin in a time zone. It remembers the latest answer, since it is
// asked at every charge. The zero value is UTC's.
type Calendar struct {
	Zone     *time.Location
	from, to Starts
}

// Starts returns the beginnings of the periods around now.
func (c *Calendar) Starts(now time.Time) Starts {
	for p := range c.from {
		if !now.Before(c.from[p]) && now.Before(c.to[p]) {
			continue
		}
		zone := c.Zone
		if zone == nil {
			zone = time.UTC
		}
		c.from[p], c.to[p] = Period(p).Bounds(now.In(zone))
	}
	return c.from
}

// End returns when the period around now ends.
func (c *Calendar) End(p Period, now time.Time) time.Time {
	c.Starts(now)
	return c.to[p]
}
