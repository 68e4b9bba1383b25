package usage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layouts are the forms of a time without a time zone, which is then in UTC.
var layouts = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01"}

// zoned are the forms of a time with a time zone.
var zoned = []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00", "2006-01-02 15:04:05Z07:00"}

// units are those of an age.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// The years of times that can be asked for: those whose seconds and nanoseconds a number holds.
const firstYear, lastYear = 1970, 2200

// ParseTime parses a time as people write it: a date or a month, which mean their beginning, a date
// with a time, an age such as 7d, "today", "yesterday" or "now". Times without a zone are in UTC.
func ParseTime(s string, now time.Time) (time.Time, error) {
	now = now.UTC()
	today := now.Truncate(24 * time.Hour)
	switch s {
	case "now":
		return now, nil
	case "today":
		return today, nil
	case "yesterday":
		return today.AddDate(0, 0, -1), nil
	}
	if age, ok := ParseAge(s); ok {
		t := now.Add(-age)
		return t, checkYear(s, t)
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t, checkYear(s, t)
		}
	}
	for _, layout := range zoned {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), checkYear(s, t)
		}
	}
	return time.Time{}, fmt.Errorf("%s: want a date such as 2026-11-01, a time such as 2026-11-01T08:00 (UTC) or 2026-11-01T08:00+01:00, an age such as 36h or 7d, today, yesterday or now", quote(s))
}

// ParseAge parses a whole number and a unit: s, m, h, d or w.
func ParseAge(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 8 {
		return 0, false
	}
	unit, ok := units[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if !ok || err != nil || n > uint64(200*365*24*time.Hour/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

func checkYear(s string, t time.Time) error {
	if y := t.UTC().Year(); y < firstYear || y > lastYear {
		return fmt.Errorf("%s: want a year from %d to %d", quote(s), firstYear, lastYear)
	}
	return nil
}

// quote quotes what was asked for, which may be long.
func quote(s string) string {
	const most = 48
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
