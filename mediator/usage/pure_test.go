package usage

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestPlanCoversOnce checks that a query's segments cover its time once and without gaps, in whole
// intervals of levels that still have it.
func TestPlanCoversOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.SampledFrom([]int64{10, 60, 300, 3600}).Draw(t, "interval")
		from := rapid.Int64Range(0, 40*day).Draw(t, "from")
		to := from + rapid.Int64Range(1, 40*day).Draw(t, "length")
		var removed [levels]int64
		removed[fine] = rapid.Int64Range(0, 80*24).Draw(t, "fine") * hour
		removed[byHour] = min(rapid.Int64Range(0, 80).Draw(t, "hours")*day, floor(removed[fine], day))
		l := lengths(interval)
		at := int64(-1)
		for i, s := range plan(from, to, interval, removed, rapid.SampledFrom([]level{byHour, byDay, byEra}).Draw(t, "coarsest")) {
			if i == 0 {
				if s.from > from {
					t.Fatalf("begins at %d, after %d", s.from, from)
				}
				at = s.from
			}
			if s.from != at || s.to <= s.from {
				t.Fatalf("segment %+v does not follow %d", s, at)
			}
			if s.from%l[s.level] != 0 || s.to%l[s.level] != 0 {
				t.Fatalf("segment %+v is not of whole intervals of %d s", s, l[s.level])
			}
			if s.level < byDay && s.from < removed[s.level] {
				t.Fatalf("segment %+v of what was removed before %d", s, removed[s.level])
			}
			at = s.to
		}
		if at < to {
			t.Fatalf("ends at %d, before %d", at, to)
		}
		// It is not extended by more than what is kept requires.
		if from >= removed[fine] && to-from < hour && at-to >= interval {
			t.Fatalf("ends at %d for %d", at, to)
		}
	})
}

// TestPlanOfAYear checks that whole days are read as days.
func TestPlanOfAYear(t *testing.T) {
	from, to := int64(100*day+2*hour+60), int64(300*day+5*hour+120)
	want := []segment{
		{fine, from, 100*day + 3*hour},
		{byHour, 100*day + 3*hour, 101 * day},
		{byDay, 101 * day, 300 * day},
		{byHour, 300 * day, 300*day + 5*hour},
		{fine, 300*day + 5*hour, to},
	}
	if diff := cmp.Diff(want, plan(from, to, 60, [levels]int64{}, byDay), cmp.AllowUnexported(segment{})); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	want[2].to = 112 * day
	want = append(want[:3:3], segment{byEra, 112 * day, 280 * day}, segment{byDay, 280 * day, 300 * day}, want[3], want[4])
	if diff := cmp.Diff(want, plan(from, to, 60, [levels]int64{}, byEra), cmp.AllowUnexported(segment{})); diff != "" {
		t.Errorf("plan with eras (-want +got):\n%s", diff)
	}
	if got := plan(to, from, 60, [levels]int64{}, byDay); got != nil {
		t.Errorf("plan of no time: %v", got)
	}
}

// TestMeterLosesNothing checks that what a meter returns adds up to a guest's sums however often it
// is sampled, and whatever meters take over from one another.
func TestMeterLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &meter{}
		m.restore(nil)
		var s Sample
		var sum Sums
		s.Life = "a"
		now := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			now += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause"))
			s.Used += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "used"))
			s.Suspended += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "suspended"))
			s.Kernels += rapid.Uint64Range(0, 1000).Draw(t, "kernels")
			s.Evictions += rapid.Uint64Range(0, 10).Draw(t, "evictions")
			used, mark := m.observe(now, &s)
			sum = sum.Add(used)
			if rapid.Bool().Draw(t, "next daemon") {
				m = &meter{}
				m.restore([]Mark{mark})
			}
		}
		want := Sums{GPUMicros: micros(s.Used), SuspendedMicros: micros(s.Suspended), Kernels: int64(s.Kernels), Evictions: int64(s.Evictions)}
		if diff := cmp.Diff(want, sum); diff != "" {
			t.Fatalf("sums (-want +got):\n%s", diff)
		}
	})
}

func TestMeterMemoryAndEnergy(t *testing.T) {
	var m meter
	m.restore(nil)
	s := Sample{Life: "a", MemoryBytes: 3 << 20, Watts: 100}
	m.observe(0, &s)
	var sum Sums
	for i := range 1000 {
		s.Used += time.Millisecond / 3 // of which each is less than a millijoule's multiple
		used, _ := m.observe(time.Duration(i+1)*time.Millisecond, &s)
		sum = sum.Add(used)
	}
	if got, want := sum.MemoryKiBSeconds, int64(3<<10); got < want-1 || got > want {
		t.Errorf("3 MiB for a second: %d KiB·s, want %d", got, want)
	}
	if got, want := sum.EnergyMillijoules, int64(33_333); !sum.EnergyKnown || got < want-40 || got > want {
		t.Errorf("100 W for a third of a second: %d mJ, want %d", got, want)
	}
	s.Watts = math.NaN()
	if used, _ := m.observe(2*time.Second, &s); used.EnergyKnown {
		t.Error("energy is known though the power is not")
	}
}

// TestMeterBounds checks that sums that go back, or that nobody can have come to, change no more
// than they can.
func TestMeterBounds(t *testing.T) {
	var m meter
	m.restore(nil)
	s := Sample{Life: "a", Used: time.Hour, Kernels: 10}
	m.observe(0, &s)
	back := Sample{Life: "a", Used: time.Minute, Kernels: 2}
	if used, mark := m.observe(1, &back); !used.zero() || mark.Used != time.Hour || mark.Kernels != 10 {
		t.Errorf("sums that go back: %+v, %+v", used, mark)
	}
	s.Kernels, s.Evictions, s.MemoryBytes = math.MaxUint64, math.MaxUint64, math.MaxUint64
	used, _ := m.observe(time.Second, &s)
	if used.Kernels > 2*maxEventsPerSecond || used.Evictions > 2*maxEventsPerSecond || used.MemoryKiBSeconds > maxMemoryBytes/1024 {
		t.Errorf("a second of a guest that lies: %+v", used)
	}
}

func TestBacklogIsBounded(t *testing.T) {
	var b backlog
	const each = int64(7)
	n := int64(0)
	for i := range 3 * maxBacklog {
		// Of 10 guests, at intervals over some weeks.
		b.add(time.Unix(int64(i)*60, 0), Subject{VM: fmt.Sprint(i % 10)}, Sums{GPUMicros: each}, Mark{Life: fmt.Sprint(i % 10)})
		n += each
	}
	var sum int64
	for _, s := range b.rows {
		sum += s.GPUMicros
	}
	if len(b.rows) > maxBacklog || sum != n || b.lost != (Sums{}) || len(b.marks) != 10 {
		t.Errorf("%d rows of %d µs (want %d), lost %+v", len(b.rows), sum, n, b.lost)
	}
	// More guests than there is room for: what is lost is counted.
	for i := range maxBacklog {
		b.add(time.Unix(0, 0), Subject{VM: fmt.Sprint("more", i)}, Sums{GPUMicros: each}, Mark{Life: "x"})
		n += each
	}
	sum = b.lost.GPUMicros
	for _, s := range b.rows {
		sum += s.GPUMicros
	}
	if len(b.rows) > maxBacklog || sum != n || b.lost.zero() {
		t.Errorf("%d rows and what is lost are %d µs, want %d", len(b.rows), sum, n)
	}
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 11, 24, 18, 30, 15, 5, time.FixedZone("", 3600))
	for s, want := range map[string]string{
		"now":                       "2026-11-24T17:30:15.000000005Z",
		"today":                     "2026-11-24T00:00:00Z",
		"yesterday":                 "2026-11-23T00:00:00Z",
		"7d":                        "2026-11-17T17:30:15.000000005Z",
		"2w":                        "2026-11-10T17:30:15.000000005Z",
		"36h":                       "2026-11-23T05:30:15.000000005Z",
		"90m":                       "2026-11-24T16:00:15.000000005Z",
		"0s":                        "2026-11-24T17:30:15.000000005Z",
		"2026-11-01":                "2026-11-01T00:00:00Z",
		"2026-11":                   "2026-11-01T00:00:00Z",
		"2026-11-01T08:00":          "2026-11-01T08:00:00Z",
		"2026-11-01 08:00:30":       "2026-11-01T08:00:30Z",
		"2026-11-01T08:00+01:00":    "2026-11-01T07:00:00Z",
		"2026-11-01T08:00:00.5Z":    "2026-11-01T08:00:00.5Z",
		"2026-11-01T08:00:00-05:00": "2026-11-01T13:00:00Z",
	} {
		got, err := ParseTime(s, now)
		if err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q is %v, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "7", "7y", "-7d", "1.5h", "2026-13-01", "2026-02-30", "tomorrow", "Now", "1969-12-31", "9999-01-01", "99999999999d", "9999999w", strings.Repeat("7", 500) + "d"} {
		if got, err := ParseTime(s, now); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.20q is %v, %v; want a short error", s, got, err)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"now", "7d", "2026-11-01", "2026-11", "2026-11-01T08:00+01:00", "0w", "\xff"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 24, 18, 30, 15, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTime(s, now)
		if err == nil && (got.Year() < firstYear || got.Year() > lastYear) {
			t.Errorf("%q is %v", s, got)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%q: an error of %d bytes", s, len(err.Error()))
		}
	})
}

// TestRecordClock checks that a clock that jumps is not followed for a day, and then is.
func TestRecordClock(t *testing.T) {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for name, jump := range map[string]time.Duration{"forward": 400 * 24 * time.Hour, "back": -400 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := startRecordClock(time.Time{}, start, time.Hour)
			if at, jumped := c.now(start.Add(time.Minute), time.Hour+time.Minute); jumped || !at.Equal(start.Add(time.Minute)) {
				t.Fatalf("a minute later: %v, %v", at, jumped)
			}
			wall := start.Add(time.Minute + jump)
			mono := time.Hour + time.Minute
			jumps := 0
			for range 23 {
				mono, wall = mono+time.Hour, wall.Add(time.Hour)
				at, jumped := c.now(wall, mono)
				if jumped {
					jumps++
				}
				if want := start.Add(mono - time.Hour); !at.Equal(want) {
					t.Fatalf("%v after a jump: %v, want %v", mono, at, want)
				}
			}
			if jumps != 1 {
				t.Errorf("said %d times, want once", jumps)
			}
			for range 2 {
				mono, wall = mono+time.Hour, wall.Add(time.Hour)
				c.now(wall, mono)
			}
			if at, _ := c.now(wall, mono); !at.Equal(wall) {
				t.Errorf("a day after a jump: %v, want %v", at, wall)
			}
		})
	}
	// A clock that was not set when the host came up is followed as soon as it is.
	c := startRecordClock(start, time.Unix(0, 0), 0)
	if at, _ := c.now(time.Unix(1, 0), time.Second); !at.Equal(start.Add(time.Second)) {
		t.Errorf("with a clock that is not set: %v", at)
	}
	set := start.Add(10 * 24 * time.Hour)
	if at, _ := c.now(set, 2*time.Second); !at.Equal(set) {
		t.Errorf("when it is set: %v, want %v", at, set)
	}
	c = startRecordClock(time.Time{}, time.Unix(0, 0), 0)
	if at, _ := c.now(set, time.Second); !at.Equal(set) {
		t.Errorf("when it is set for the first time: %v, want %v", at, set)
	}
	// A host that was off for a month is believed, one that was off for a year is not.
	c = startRecordClock(start, start.Add(30*24*time.Hour), 0)
	if at, jumped := c.now(start.Add(30*24*time.Hour), 0); jumped || !at.Equal(start.Add(30*24*time.Hour)) {
		t.Errorf("after a month off: %v, %v", at, jumped)
	}
	c = startRecordClock(start, start.Add(365*24*time.Hour), 0)
	if at, jumped := c.now(start.Add(365*24*time.Hour), 0); !jumped || !at.Equal(start) {
		t.Errorf("after a year off: %v, %v", at, jumped)
	}
}

func TestGroup(t *testing.T) {
	a := Subject{VM: "a", Domain: "web", DomainUUID: "u1", Owner: "alice", Project: "p", GPU: "gpu0"}
	renamed := a
	renamed.Domain, renamed.GPU = "web2", "gpu1"
	b := Subject{VM: "b", Owner: "alice", GPU: "gpu0"}
	parts := []part{{0, a, Sums{GPUMicros: 1}}, {0, b, Sums{GPUMicros: 2}}, {day, renamed, Sums{GPUMicros: 4}}}
	row := func(s Subject, n int64) Row { return Row{Subject: s, Sums: Sums{GPUMicros: n}} }
	domain := Subject{Domain: "web2", DomainUUID: "u1", Owner: "alice", Project: "p"}
	vm := renamed
	vm.GPU = ""
	other := b
	other.GPU = ""
	for by, want := range map[By][]Row{
		ByVM:      {row(vm, 5), row(other, 2)},
		ByDomain:  {row(Subject{Owner: "alice"}, 2), row(domain, 5)},
		ByOwner:   {row(Subject{Owner: "alice"}, 7)},
		ByProject: {row(Subject{}, 2), row(Subject{Project: "p"}, 5)},
		ByGPU:     {row(Subject{GPU: "gpu0"}, 3), row(Subject{GPU: "gpu1"}, 4)},
		ByDay:     {{Day: "1970-01-01", Sums: Sums{GPUMicros: 3}}, {Day: "1970-01-02", Sums: Sums{GPUMicros: 4}}},
	} {
		rows, total := group(by, parts)
		if diff := cmp.Diff(want, rows); diff != "" || total.GPUMicros != 7 {
			t.Errorf("by %s: total %+v, rows (-want +got):\n%s", by, total, diff)
		}
	}
}

func TestParseBy(t *testing.T) {
	if by, err := ParseBy(""); err != nil || by != ByVM {
		t.Errorf("%v, %v", by, err)
	}
	if _, err := ParseBy("days"); err == nil || err.Error() != `"days": want vm, domain, owner, project, gpu or day` {
		t.Errorf("an error: %v", err)
	}
}
