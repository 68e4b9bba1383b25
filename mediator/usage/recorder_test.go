package usage

import (
	"encoding/json"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
)

// world is a recorder with guests and a clock of the test's.
type world struct {
	t       *testing.T
	o       Options
	r       *Recorder
	clock   *clock.Sim
	wall    time.Time
	boot    time.Duration
	samples []Sample
	fault   error
	log     strings.Builder
}

var begin = time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: new(clock.Sim), wall: begin, boot: time.Hour}
	w.o = Options{
		Path: filepath.Join(t.TempDir(), "state", "usage.sqlite"), Clock: w.clock, Wall: func() time.Time { return w.wall },
		Boot: "boot", SinceBoot: func() time.Duration { return w.boot },
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Samples: func() []Sample { return w.samples },
		Fault: func() error { return w.fault }, unsynced: true,
	}
	w.open()
	return w
}

func (w *world) open() {
	w.r = Open(w.o)
	r := w.r
	w.t.Cleanup(func() {
		w.fault = nil
		if err := r.Close(); err != nil {
			w.t.Error(err)
		}
	})
}

// pass lets time pass, with rounds.
func (w *world) pass(d time.Duration) {
	for end := w.clock.Now() + d; w.clock.Now() < end; {
		w.clock.Advance(min(Round, end-w.clock.Now()))
		step := min(Round, d)
		w.wall, w.boot = w.wall.Add(step), w.boot+step
		w.r.round()
	}
}

// skip lets time pass without rounds.
func (w *world) skip(d time.Duration) {
	w.clock.Advance(d)
	w.wall, w.boot = w.wall.Add(d), w.boot+d
}

func (w *world) report(q Query) Report {
	w.t.Helper()
	if q.To.IsZero() {
		q.From, q.To = begin.AddDate(-20, 0, 0), begin.AddDate(20, 0, 0)
	}
	rep, err := w.r.Report(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

func (w *world) total() Sums { w.t.Helper(); return w.report(Query{By: ByVM}).Total }

func (w *world) problem(want string) {
	w.t.Helper()
	problems := strings.Join(w.r.Problems(), "\n")
	if want == "" && problems != "" || !strings.Contains(problems, want) {
		w.t.Errorf("problems %q, want %q", problems, want)
	}
}

func guest(name string, began time.Duration) Sample {
	return Sample{Life: "life of " + name, Began: began, Subject: Subject{VM: name, GPU: "gpu0", Owner: "alice"}}
}

// TestRecordOutlivesGuests checks that usage is there when its guest has ended, and the daemon too.
func TestRecordOutlivesGuests(t *testing.T) {
	w := newWorld(t)
	g := guest("a", w.boot+time.Second)
	w.samples = []Sample{g}
	for range 30 {
		w.samples[0].Used += time.Second
		w.samples[0].Kernels += 3
		w.pass(Round)
	}
	last := w.samples[0]
	last.Used += 500 * time.Millisecond
	last.Kernels++
	w.r.Ended(last)
	w.r.round() // which has a sample from before the guest ended
	w.samples = nil
	w.pass(time.Minute)
	want := Sums{GPUMicros: 30_500_000, Kernels: 91}
	if diff := cmp.Diff(want, w.total()); diff != "" {
		t.Errorf("of a guest that has ended (-want +got):\n%s", diff)
	}
	w.open()
	if diff := cmp.Diff(want, w.total()); diff != "" {
		t.Errorf("to the next daemon (-want +got):\n%s", diff)
	}
	rep := w.report(Query{From: begin, To: begin.Add(time.Minute), By: ByOwner})
	if diff := cmp.Diff([]Row{{Subject: Subject{Owner: "alice"}, Sums: Sums{GPUMicros: 12_000_000, Kernels: 36}}}, rep.Rows); diff != "" {
		t.Errorf("in the first minute (-want +got):\n%s", diff)
	}
}

// TestNextDaemonGoesOn checks that a daemon records what is above the marks of the one before.
func TestNextDaemonGoesOn(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	w.samples[0].Used = time.Minute
	w.pass(Round)
	if got := w.total().GPUTime(); got != time.Minute {
		t.Fatalf("recorded %v, want a minute", got)
	}
	w.samples[0].Used += time.Second // which the first daemon does not record
	w.skip(time.Hour)
	w.open()
	w.pass(Round)
	if got := w.total().GPUTime(); got != 61*time.Second {
		t.Errorf("recorded %v, want 61s", got)
	}
}

// TestStaleSample checks that a sample that was taken before a guest's last one does not record the
// guest's usage again.
func TestStaleSample(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	w.samples[0].Used = time.Minute
	w.pass(Round)
	last := w.samples[0]
	last.Used += time.Second
	samples := w.o.Samples
	w.r.o.Samples = func() []Sample {
		all := samples() // and then the guest ends
		w.r.Ended(last)
		return all
	}
	w.pass(Round)
	w.r.o.Samples, w.samples = samples, nil
	w.pass(Round)
	if got := w.total().GPUTime(); got != 61*time.Second {
		t.Errorf("recorded %v, want 61s", got)
	}
}

// TestOlderGuests checks that what a guest used before the database was made is not recorded.
func TestOlderGuests(t *testing.T) {
	w := newWorld(t)
	old, young := guest("old", w.boot-time.Minute), guest("young", w.boot+time.Second)
	old.Used, young.Used = time.Hour, time.Second
	w.samples = []Sample{old, young}
	w.pass(Round)
	w.samples[0].Used += 2 * time.Second
	w.pass(Round)
	if got := w.total().GPUTime(); got != 3*time.Second {
		t.Errorf("recorded %v, want 3s", got)
	}
}

// TestBrokenDisk checks that nothing is lost while nothing can be written, and that the problem is
// shown and logged once.
// TestNoDatabaseAtFirst checks that what guests use is recorded when the database can be opened at
// last.
// TestCorruptDatabase checks that a corrupt database is kept, that a new one takes its place, and
// that this is shown and logged.
// TestRetention checks that rows that are too old are removed, level by level, and that no sum
// changes until its days are.
func TestRetention(t *testing.T) {
	w := newWorld(t)
	w.o.Interval = time.Hour // so that there are few
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	w.o.Path += "2"
	w.o.Keep = Keep{Intervals: 24 * time.Hour, Hours: 5 * 24 * time.Hour, Days: 30 * 24 * time.Hour}
	w.open()
	w.samples = []Sample{guest("a", w.boot+1)}
	const days = 12
	for range days * 24 {
		w.skip(time.Hour)
		w.samples[0].Used += time.Minute
		w.r.round()
	}
	count := func(v level) (n int) {
		if err := w.r.store.read.QueryRow("SELECT count(*) FROM " + tables[v]).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(fine); n < 24 || n > 26 {
		t.Errorf("%d intervals, want those of a day", n)
	}
	if n := count(byHour); n < 5*24 || n > 6*24+1 {
		t.Errorf("%d hours, want those of five days", n)
	}
	if n := count(byDay); n != days+1 {
		t.Errorf("%d days, want %d", n, days+1)
	}
	if got := w.total().GPUTime(); got != days*24*time.Minute {
		t.Errorf("in all %v, want %v", got, days*24*time.Minute)
	}
	// An hour of which only the day is left.
	rep := w.report(Query{From: begin.Add(26 * time.Hour), To: begin.Add(27 * time.Hour)})
	if !rep.From.Equal(begin.Truncate(24*time.Hour).AddDate(0, 0, 1)) || rep.To.Sub(rep.From) != 24*time.Hour || rep.Total.GPUTime() != 24*time.Minute {
		t.Errorf("of an old hour: %v to %v, %v", rep.From, rep.To, rep.Total.GPUTime())
	}
	w.skip(25 * 24 * time.Hour)
	w.r.round()
	if n := count(byDay); n >= days {
		t.Errorf("%d days, though most are too old", n)
	}
}

// TestClockJumps checks that usage is recorded at the right time when the wall clock jumps, either
// way, and back.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"forward": 15 * 366 * 24 * time.Hour, "back": -15 * 366 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.samples = []Sample{guest("a", w.boot+1)}
			used := func(d time.Duration) {
				for range d / (10 * time.Minute) {
					w.skip(10 * time.Minute)
					w.samples[0].Used += time.Second
					w.r.round()
				}
			}
			used(time.Hour)
			w.wall = w.wall.Add(jump)
			used(2 * time.Hour)
			w.wall = w.wall.Add(-jump)
			used(time.Hour)
			if got := w.total().GPUTime(); got != 24*time.Second {
				t.Errorf("recorded %v, want 24s", got)
			}
			if got := w.report(Query{From: begin, To: begin.Add(5 * time.Hour)}).Total.GPUTime(); got != 24*time.Second {
				t.Errorf("at the right time %v, want 24s", got)
			}
			if !strings.Contains(w.log.String(), "clock has jumped") {
				t.Errorf("not logged:\n%s", w.log.String())
			}
		})
	}
}

// TestSizeIsBounded checks that the database does not grow beyond its bound, and that days outlive
// intervals.
// TestLaterVersion checks that a database of a later version is left alone.
// TestUnaccounted checks that time that is unaccounted for is recorded once, by all levels.
func TestUnaccounted(t *testing.T) {
	w := newWorld(t)
	a := guest("a", time.Hour)
	a.Used, a.Unaccounted = time.Second, 2*time.Second
	w.samples = []Sample{a}
	w.pass(Round)
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.samples[0].Unaccounted += time.Second
	w.pass(Round)
	if got := w.total(); got.UnaccountedMicros != 3e6 || got.GPUMicros != 1e6 {
		t.Errorf("%+v", got)
	}
	for v := range levels {
		var sum int64
		if err := w.r.store.write.QueryRow("SELECT sum(unaccounted_us) FROM " + tables[v]).Scan(&sum); err != nil || sum != 3e6 {
			t.Errorf("%s: %d, %v", tables[v], sum, err)
		}
	}
}

// TestEarlierVersion checks that a database of version 1 gets what it lacks, and keeps what it has.
// TestFilter checks what restricts a query.
func TestFilter(t *testing.T) {
	w := newWorld(t)
	a, b := guest("a", w.boot+1), guest("b", w.boot+1)
	a.Used, b.Used = time.Second, 2*time.Second
	a.Subject.Domain, a.Subject.DomainUUID, b.Subject.Owner = "web", "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11", "bob"
	w.samples = []Sample{a, b}
	w.pass(Round)
	for _, c := range []struct {
		only Subject
		want time.Duration
	}{
		{Subject{}, 3 * time.Second},
		{Subject{VM: "a"}, time.Second},
		{Subject{Owner: "bob"}, 2 * time.Second},
		{Subject{Domain: "web"}, time.Second},
		{Subject{Domain: "5D4B2F6E-0b0a-4c56-9d3f-6b1f0a0e7c11"}, time.Second},
		{Subject{GPU: "gpu0"}, 3 * time.Second},
		{Subject{GPU: "gpu1"}, 0},
		{Subject{VM: "a", Owner: "bob"}, 0},
	} {
		for _, by := range Kinds {
			got, err := w.r.GPUTime(t.Context(), Query{From: begin.AddDate(0, 0, -1), To: begin.AddDate(0, 0, 1), By: by, Only: c.only})
			if err != nil || got != c.want {
				t.Errorf("%+v by %s: %v, %v; want %v", c.only, by, got, err, c.want)
			}
		}
	}
}

// TestCosts checks the export for OpenCost.
func TestCosts(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	w.samples[0].Subject.Project = "blue"
	for range 2 {
		w.samples[0].Used += 30 * time.Minute
		w.pass(Round)
		w.skip(24 * time.Hour)
	}
	costs, err := w.r.Costs(t.Context(), Query{From: begin, To: begin.Add(36 * time.Hour)}, false, "host1", Price{GPUHour: 2, Currency: "EUR"})
	if err != nil {
		t.Fatal(err)
	}
	if len(costs) != 2 || len(costs[0].Costs) != 1 || costs[1].End.Sub(costs[0].Start) != 48*time.Hour {
		t.Fatalf("costs: %+v", costs)
	}
	c := costs[0].Costs[0]
	if math.Abs(c.BilledCost-1) > 1e-9 || c.UsageQuantity != 0.5 || c.AccountName != "blue" || c.Labels["owner"] != "alice" || costs[0].Currency != "EUR" {
		t.Errorf("cost: %+v", c)
	}
	b, err := json.Marshal(costs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"cost_source":"gpu"`, `"billed_cost":1`, `"usage_unit":"GPU-hours"`, `"start":"2026-11-24T00:00:00Z"`, `"errors":[]`} {
		if !strings.Contains(string(b), name) {
			t.Errorf("no %s in %s", name, b)
		}
	}
	hourly, err := w.r.Costs(t.Context(), Query{From: begin, To: begin.Add(time.Hour)}, true, "host1", Price{GPUHour: 2})
	if err != nil || len(hourly) != 1 || hourly[0].Costs[0].UsageQuantity != 0.5 || hourly[0].End.Sub(hourly[0].Start) != time.Hour {
		t.Errorf("by hour: %+v, %v", hourly, err)
	}
}

// TestHoursOfADay checks that a whole day is told by its hours, if hours are asked for.
func TestHoursOfADay(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	for range 30 {
		w.samples[0].Used += time.Minute
		w.skip(time.Hour)
		w.r.round()
	}
	day := begin.Truncate(24*time.Hour).AddDate(0, 0, 1)
	costs, err := w.r.Costs(t.Context(), Query{From: day, To: day.AddDate(0, 0, 1)}, true, "host1", Price{})
	if err != nil || len(costs) != 16 { // the record ends at 16:00
		t.Fatalf("%d hours, %v", len(costs), err)
	}
	for i, c := range costs {
		if want := day.Add(time.Duration(i) * time.Hour); !c.Start.Equal(want) || c.Costs[0].UsageQuantity != 1./60 {
			t.Errorf("hour %d: %+v", i, c)
		}
	}
}

// TestUnsureCommit checks that a batch of which nobody knows whether it was written is recorded
// once.
