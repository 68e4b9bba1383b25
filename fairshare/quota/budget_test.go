package quota

import (
	"encoding/json"
	"math"
	"testing"
	"time"
	_ "time/tzdata" // the host may have none

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestPeriods compares the calendar with what a wall calendar shows, across the changes of the
// clock in spring and autumn.
func TestPeriods(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		p            Period
		at, from, to string
		zone         *time.Location
	}{
		{Day, "2026-11-24T17:50:00Z", "2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z", time.UTC},
		{Day, "2026-11-24T23:30:00Z", "2026-11-24T23:00:00Z", "2026-11-25T23:00:00Z", berlin},
		{Day, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", berlin}, // 23 hours
		{Day, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", berlin}, // 25 hours
		{Week, "2026-11-24T17:50:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", time.UTC},
		{Week, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", time.UTC},
		{Week, "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", time.UTC},
		{Week, "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", time.UTC},
		{Month, "2026-11-30T23:59:59Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", time.UTC},
		{Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", time.UTC},
		{Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", time.UTC},
	} {
		from, to := test.p.Bounds(instant(t, test.at).In(test.zone))
		if !from.Equal(instant(t, test.from)) || !to.Equal(instant(t, test.to)) {
			t.Errorf("%v around %s in %v: %v to %v, want %s to %s", test.p, test.at, test.zone, from.UTC(), to.UTC(), test.from, test.to)
		}
	}
}

// drawTime draws an instant of some twenty years.
func drawTime(t *rapid.T, label string) time.Time {
	return time.Unix(rapid.Int64Range(1_700_000_000, 2_300_000_000).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns"))
}

// TestPeriodsCoverTime tests that each instant lies in its period, that periods follow one another
// without a gap, and that the calendar's memory changes no answer.
func TestPeriodsCoverTime(t *testing.T) {
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, z)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Calendar{Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
		for range 5 {
			at := drawTime(t, "at")
			starts := c.Starts(at)
			for p := range Month + 1 {
				from, to := p.Bounds(at.In(c.Zone))
				if at.Before(from) || !at.Before(to) {
					t.Fatalf("%v is not in the %v from %v to %v", at, p, from, to)
				}
				if again, _ := p.Bounds(to); !again.Equal(to) {
					t.Fatalf("the %v after that from %v begins at %v, want %v", p, from, again, to)
				}
				if !starts[p].Equal(from) || !c.End(p, at).Equal(to) {
					t.Fatalf("the calendar says %v to %v, want %v to %v", starts[p], c.End(p, at), from, to)
				}
			}
		}
	})
}

// saved is what a restart leaves of a value.
func saved[T any](t *rapid.T, v T) (w T) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestBudgetSurvives runs a guest that always has work for rounds, while the daemon restarts and
// the clock jumps both ways and comes back. In no period does it get more than its hard limit and
// one round, however often the period was left and entered again; and it gets all of that.
func TestBudgetSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{Period: Period(rapid.IntRange(0, 2).Draw(t, "period")), Hard: time.Duration(rapid.IntRange(1, 1000).Draw(t, "hard ms")) * time.Millisecond}
		b.Soft = time.Duration(rapid.Int64Range(0, int64(b.Hard)).Draw(t, "soft"))
		clocks := make([]time.Time, rapid.IntRange(1, historyPeriods).Draw(t, "clocks"))
		for i := range clocks {
			clocks[i] = drawTime(t, "clock")
		}
		const most = 24 * time.Millisecond
		var a Account
		var c Calendar
		truth := make(map[time.Time]time.Duration)
		told := make(map[time.Time]int) // how often, by period
		now := clocks[0]
		t.Repeat(map[string]func(*rapid.T){
			"jump":    func(t *rapid.T) { now = rapid.SampledFrom(clocks).Draw(t, "to") },
			"step":    func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "s")) * time.Second) },
			"restart": func(t *rapid.T) { a, c = saved(t, a), Calendar{} },
			"round": func(t *rapid.T) {
				starts := c.Starts(now)
				if a.Level(b, starts) == OverHard {
					return // held
				}
				d := time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "used"))
				a.Charge(starts, Measured{Charged: d})
				truth[starts[b.Period]] += d
				if _, news := a.Judge(b, starts, 0); news {
					told[starts[b.Period]]++
				}
			},
			"": func(t *rapid.T) {
				for from, used := range truth {
					if used > b.Hard+most {
						t.Fatalf("%v of %v in the %v from %v", used, b.Hard, b.Period, from)
					}
					// One for each limit at most, and that of a limit that is reached.
					n, reached := told[from], b.Level(used) > Within
					if n > 2 || reached != (n > 0) {
						t.Fatalf("%v of %v and %v in the %v from %v was told %d times", used, b.Soft, b.Hard, b.Period, from, n)
					}
				}
				from := c.Starts(now)
				used := truth[from[b.Period]]
				if len(truth) <= historyPeriods && a.Used(b.Period, from) != used {
					t.Fatalf("%v is known of %v", a.Used(b.Period, from), used)
				}
			},
		})
	})
}

// TestAccountIsBounded tests that an account remembers the latest periods only, and that sums don't
// overflow.
func TestAccountIsBounded(t *testing.T) {
	var a Account
	var c Calendar
	at := instant(t, "2026-11-24T12:00:00Z")
	for range 100 {
		a.Charge(c.Starts(at), Measured{Charged: maxUsed, Executed: maxUsed})
		a.Charge(c.Starts(at), Measured{Charged: maxUsed, Executed: maxUsed, Variance: math.Inf(1)})
		at = at.AddDate(0, 1, 0)
	}
	if n := len(a.Spent); n != 3*historyPeriods {
		t.Errorf("%d periods are remembered, want %d", n, 3*historyPeriods)
	}
	last := c.Starts(at.AddDate(0, -1, 0))
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
	if d := a.Used(Month, last); d != maxUsed {
		t.Errorf("used %d, want %d", d, int64(maxUsed))
	}
}

func TestLevels(t *testing.T) {
	var got []Level
	b := Budget{Soft: 2, Hard: 4}
	for used := range time.Duration(6) {
		got = append(got, b.Level(used), Budget{Hard: 3}.Level(used), Budget{}.Level(used))
	}
	want := []Level{0, 0, 0, 0, 0, 0, OverSoft, 0, 0, OverSoft, OverHard, 0, OverHard, OverHard, 0, OverHard, OverHard, 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestParse tests that what a budget is written as is what it is read from, and what is refused.
func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{
			Period: Period(rapid.IntRange(0, 2).Draw(t, "period")), AtHard: AtHard(rapid.IntRange(0, 1).Draw(t, "at hard")),
			Hard: time.Duration(rapid.Int64Range(0, int64(maxLimit)).Draw(t, "hard")), Soft: time.Duration(rapid.Int64Range(0, int64(maxLimit)).Draw(t, "soft")),
		}
		if b.Check() != nil || b.Soft == 0 && b.Hard == 0 {
			return
		}
		if got, err := Parse(b.String()); err != nil || got != b {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
		if got := saved(t, b); got != b {
			t.Errorf("%+v became %+v", b, got)
		}
	})
	if b, err := Parse("none"); err != nil || b != (Budget{}) {
		t.Errorf("none: %+v, %v", b, err)
	}
	for _, bad := range []string{"", "10h", "10h/year", "-1h/day", "0s/day", "10h/day,soft=11h", "10h/day,hard=3h", "10h/day,at-hard=kill", "none/day", "1e9h/day", "10/day"} {
		if b, err := Parse(bad); err == nil {
			t.Errorf("%q is %+v", bad, b)
		}
	}
}

// FuzzParse checks that a budget that is parsed is valid and parsed again as the same after it is
// printed. A domain's metadata has such texts.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"none", "10h/day", "100h/month,soft=80h,at-hard=throttle", "none/week,soft=5h", "1h/day,soft=2h", "-1h/day", "/,="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := Parse(s)
		if err != nil {
			return
		}
		if err := b.Check(); err != nil {
			t.Errorf("%q gave %+v: %v", s, b, err)
		}
		if again, err := Parse(b.String()); err != nil || again != b {
			t.Errorf("%q gave %+v, printed as %q, which gave %+v, %v", s, b, b, again, err)
		}
	})
}

// TestBudgetAsWritten: a budget is shown as people write it.
func TestBudgetAsWritten(t *testing.T) {
	for _, text := range []string{"10h/day", "40h/week,soft=30h30m", "none/month,soft=1h0m5s", "90s/day", "1h30m/day,soft=10m,at-hard=throttle", "none"} {
		b, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		want := text
		if text == "90s/day" {
			want = "1m30s/day"
		}
		if got := b.String(); got != want {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
}
