package usage

import "time"

// Keep says how long rows are kept. Zero is the default, and below zero is for ever.
type Keep struct {
	Intervals, Hours, Days time.Duration
}

// The defaults of Options. With them, a thousand guests that are never idle take 240 MB in the first
// year, and 19 MB more each year (BenchmarkYear).
const (
	DefaultInterval      = time.Minute
	DefaultKeepIntervals = 2 * 24 * time.Hour
	DefaultKeepHours     = 92 * 24 * time.Hour
	DefaultKeepDays      = 10 * 366 * 24 * time.Hour
	DefaultMaxBytes      = 1 << 30
)

// horizon returns the time before which a level's rows are too old, and false if none is. It is at a
// boundary of the next level, so that what is removed is whole there.
func (k *Keep) horizon(v level, now time.Time) (int64, bool) {
	keep, standard, boundary := k.Intervals, DefaultKeepIntervals, int64(hour)
	switch v {
	case byHour:
		keep, standard, boundary = k.Hours, DefaultKeepHours, day
	case byDay:
		keep, standard, boundary = k.Days, DefaultKeepDays, day
	case byEra:
		keep, standard, boundary = k.Days, DefaultKeepDays, era
	}
	switch {
	case keep < 0:
		return 0, false
	case keep == 0:
		keep = standard
	}
	return floor(now.Unix()-int64(keep/time.Second), boundary), true
}

const (
	// maxStep is how far a clock may be set without being doubted.
	maxStep = 24 * time.Hour
	// maxOff is how long a host may have been off without its clock being doubted.
	maxOff = 62 * 24 * time.Hour
	// doubt is how long a clock that is doubted must run before it is believed.
	doubt = 24 * time.Hour
)

// earliest is before the first record. A clock that shows less is not set yet.
var earliest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// recordClock is the time at which usage is recorded and rows are too old. It follows the host's
// wall clock, but for jumps of more than a day: those it follows a day later. Otherwise a clock that
// is set to another year by mistake would scatter usage over the years, and remove rows of the right
// one. It is pure.
type recordClock struct {
	trusted time.Time
	at      time.Duration // on the monotonic clock
	since   time.Duration // when the doubt began
	doubts  bool
}

// startRecordClock returns the clock as an earlier daemon left it; trusted is zero if there was
// none.
func startRecordClock(trusted, wall time.Time, mono time.Duration) recordClock {
	if trusted.Before(earliest) || wall.After(trusted.Add(-maxStep)) && wall.Before(trusted.Add(maxOff)) {
		trusted = wall
	}
	return recordClock{trusted: trusted, at: mono}
}

// now returns the time, and whether the wall clock has just jumped.
func (c *recordClock) now(wall time.Time, mono time.Duration) (_ time.Time, jumped bool) {
	expected := c.trusted.Add(max(mono-c.at, 0))
	c.at = mono
	step, ahead := wall.Sub(expected), maxStep
	if c.doubts {
		ahead = maxOff // a clock that was not set when the host came up
	}
	switch {
	case step <= ahead && step >= -maxStep, c.doubts && mono-c.since >= doubt, expected.Before(earliest):
		c.trusted, c.doubts = wall, false
		return wall, false
	case !c.doubts:
		c.doubts, c.since, jumped = true, mono, true
	}
	c.trusted = expected
	return expected, jumped
}
