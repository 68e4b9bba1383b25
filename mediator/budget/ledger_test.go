package budget

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"vgpud/fairshare/quota"
	"vgpud/mediator/events"
	"vgpud/mediator/statefile"
)

// charged is GPU time that was charged, and that no executor has counted.
func charged(d time.Duration) quota.Measured { return quota.Measured{Charged: d} }

// host is a host whose daemons open one ledger after another.
type host struct {
	path string
	now  time.Time
	disk error
}

func newHost(t testing.TB) *host {
	return &host{path: filepath.Join(t.TempDir(), "budgets.json"), now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
}

func (h *host) open(owners map[string]quota.Budget) *Ledger {
	l := Open(Options{
		Path: h.path, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now },
		Files: statefile.Files{Fault: func(statefile.Step, string) error { return h.disk }},
	})
	l.SetOwners(owners)
	return l
}

// TestBudgetsAddUp runs guests of two owners that come, go and use the GPU, while daemons are
// stopped or killed and the clock jumps. Each guest, and each owner, has used exactly what was
// charged in the present period, however it was told; and the strictest budget decides.
func TestBudgetsAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHost(t)
		names := []string{"a", "b", "c", "d"}
		ownerOf := map[string]string{"a": "x", "b": "x", "c": "y"}
		budgets := map[string]quota.Budget{"a": {Hard: time.Second}, "b": {Hard: 3 * time.Second, AtHard: quota.Throttle}}
		owners := map[string]quota.Budget{"x": {Period: quota.Week, Hard: 2 * time.Second}, "y": {Soft: time.Second, Period: quota.Month}}
		clocks := []time.Time{h.now, h.now.AddDate(0, 0, 1), h.now.AddDate(0, 1, 0), h.now.AddDate(-3, 0, 0)}

		l := h.open(owners)
		joined, totals := map[string]*Guest{}, map[string]quota.Measured{}
		type when struct {
			name   string
			period quota.Period
			from   time.Time
		}
		truth := map[when]time.Duration{}
		used := func(name string, p quota.Period) time.Duration {
			from, _ := p.Bounds(h.now)
			return truth[when{name, p, from}]
		}
		again := func() {
			l = h.open(owners)
			for name := range joined {
				joined[name] = l.Join(name, name, ownerOf[name], budgets[name], totals[name])
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"come": func(r *rapid.T) {
				name := rapid.SampledFrom(names).Draw(r, "who")
				if joined[name] == nil {
					totals[name] = quota.Measured{}
					joined[name] = l.Join(name, name, ownerOf[name], budgets[name], quota.Measured{})
				}
			},
			"go": func(r *rapid.T) {
				if g := joined[rapid.SampledFrom(names).Draw(r, "who")]; g != nil {
					g.Leave()
					delete(joined, g.key)
				}
			},
			"use": func(r *rapid.T) {
				name := rapid.SampledFrom(names).Draw(r, "who")
				g := joined[name]
				if g == nil {
					return
				}
				d := time.Duration(rapid.IntRange(0, 500).Draw(r, "ms")) * time.Millisecond
				totals[name] = totals[name].Add(quota.Measured{Charged: d})
				for p := range quota.Month + 1 {
					from, _ := p.Bounds(h.now)
					for _, of := range []string{name, ownerOf[name]} {
						truth[when{of, p, from}] += d
					}
				}
				sanction := func(of string, b quota.Budget) quota.Sanction { return b.Sanction(b.Level(used(of, b.Period))) }
				want := max(sanction(name, budgets[name]), sanction(ownerOf[name], owners[ownerOf[name]]))
				if got := g.Charge(totals[name], 0); got != want {
					r.Fatalf("%s: sanction %d, want %d", name, got, want)
				}
			},
			"save": func(r *rapid.T) {
				if err := l.Save(); err != nil {
					r.Fatal(err)
				}
			},
			"stop": func(r *rapid.T) {
				if err := l.Save(); err != nil {
					r.Fatal(err)
				}
				again()
			},
			// The guests' totals outlive the daemon, as they do on their control pages. Since guests
			// that came or went meanwhile are not known, this is only done right after a save.
			"kill": func(r *rapid.T) {
				if l.changes == l.saved {
					again()
				}
			},
			"jump": func(r *rapid.T) { h.now = rapid.SampledFrom(clocks).Draw(r, "to") },
			"": func(r *rapid.T) {
				for name, g := range joined {
					own, owner := g.Status()
					if b, ok := budgets[name]; ok && own.Used != used(name, b.Period) {
						r.Fatalf("%s: %v used, want %v", name, own.Used, used(name, b.Period))
					}
					if b, ok := owners[ownerOf[name]]; ok && owner.Used != used(ownerOf[name], b.Period) {
						r.Fatalf("owner %s: %v used, want %v", ownerOf[name], owner.Used, used(ownerOf[name], b.Period))
					}
				}
			},
		})
	})
}

// TestKilled tests that what a guest used between the last save and a kill is charged by the next
// daemon, once.
func TestKilled(t *testing.T) {
	h := newHost(t)
	b := quota.Budget{Hard: time.Minute}
	l := h.open(nil)
	g := l.Join("a", "a", "", b, quota.Measured{})
	g.Charge(charged(10*time.Second), 0)
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	g.Charge(charged(25*time.Second), 0) // not saved
	for range 3 {
		l = h.open(nil)
		own, _ := l.Join("a", "a", "", b, charged(25*time.Second)).Status()
		if own.Used != 25*time.Second {
			t.Errorf("the next daemon knows of %v, want 25s", own.Used)
		}
		if err := l.Save(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExecuted tests that what executors counted beyond what was charged is known of the guest and of
// its owner, over restarts of the daemon and in the guest's next life, once.
func TestExecuted(t *testing.T) {
	h := newHost(t)
	b := quota.Budget{Hard: time.Minute}
	owners := map[string]quota.Budget{"x": {Hard: time.Hour}}
	l := h.open(owners)
	used := func(g *Guest, want time.Duration) {
		t.Helper()
		if own, owner := g.Status(); own.Used != want || owner.Used != want {
			t.Errorf("the guest has used %v and its owner %v, want %v", own.Used, owner.Used, want)
		}
	}
	at := func(charged, executed time.Duration) quota.Measured {
		return quota.Measured{Charged: charged, Executed: executed, Variance: 1e20}
	}
	g := l.Join("a", "a", "x", b, quota.Measured{})
	g.Charge(at(10*time.Second, 12*time.Second), 0)
	used(g, 12*time.Second)
	for range 2 { // the next daemon knows no variance of what the last one charged
		if err := l.Save(); err != nil {
			t.Fatal(err)
		}
		l = h.open(owners)
		g = l.Join("a", "a", "x", b, quota.Measured{Charged: 10 * time.Second, Executed: 12 * time.Second})
		used(g, 12*time.Second)
	}
	g.Charge(quota.Measured{Charged: 10 * time.Second, Executed: 13 * time.Second}, 0)
	used(g, 13*time.Second)
	g.Leave()
	g = l.Join("a", "a", "x", b, quota.Measured{})
	g.Charge(at(5*time.Second, 4*time.Second), 0)
	used(g, 17*time.Second)
	if s := g.Charge(at(5*time.Second, 4*time.Second), 43*time.Second); s != quota.Held {
		t.Errorf("with the rest of the budget on the GPU, the sanction is %v", s)
	}
}

// TestBadFile tests that a file that can't be read is set aside, and that a full disk loses
// nothing once there is room again.
func TestBadFile(t *testing.T) {
	for _, content := range []string{
		"", "{", `{"version":9}`, "[]", `{"version":1,"guests":{"a":7}}`,
		`{"version":9,"guests":{"a":{"spent":[{"period":0,"from":"2026-11-24T00:00:00Z","used":3600000000000}]}}}`,
	} {
		h := newHost(t)
		if err := os.WriteFile(h.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		l := h.open(nil)
		g := l.Join("a", "a", "", quota.Budget{Hard: time.Second}, quota.Measured{})
		if own, _ := g.Status(); own.Used != 0 {
			t.Errorf("%q: %v used at first", content, own.Used)
		}
		if s := g.Charge(charged(2*time.Second), 0); s != quota.Held {
			t.Errorf("%q: sanction %d, want %d", content, s, quota.Held)
		}
		if b, err := os.ReadFile(h.path + ".bad"); err != nil || string(b) != content {
			t.Errorf("%q was kept as %q, %v", content, b, err)
		}
		h.disk = unix.ENOSPC
		if err := l.Save(); !statefile.IsDiskError(err) {
			t.Errorf("full disk: %v", err)
		}
		h.disk = nil
		if err := l.Save(); err != nil {
			t.Fatal(err)
		}
		if own, _ := h.open(nil).Join("a", "a", "", quota.Budget{Hard: time.Second}, quota.Measured{}).Status(); own.Level != quota.OverHard || own.Used != 2*time.Second {
			t.Errorf("the next daemon has %+v", own)
		}
	}
}

// TestLimitsAreEvents tests that a limit that is reached is an event once in a period, for the guest
// and for its owner, whether or not the daemon restarts in between.
func TestLimitsAreEvents(t *testing.T) {
	h := newHost(t)
	ring := events.NewRing(32, h.now)
	open := func() *Ledger {
		return Open(Options{Path: h.path, Log: slog.New(events.NewHandler(slog.DiscardHandler, ring)), Now: func() time.Time { return h.now }})
	}
	b := quota.Budget{Soft: time.Second, Hard: 3 * time.Second}
	total := time.Duration(0)
	for range 2 {
		for range 8 {
			l := open()
			l.SetOwners(map[string]quota.Budget{"x": {Soft: 2 * time.Second, Period: quota.Month}})
			g := l.Join("uuid/0", "a", "x", b, charged(total))
			for range 2 {
				total += 250 * time.Millisecond
				g.Charge(charged(total), 0)
			}
			if err := l.Save(); err != nil {
				t.Fatal(err)
			}
		}
		h.now = h.now.AddDate(0, 0, 1)
	}
	var got []string
	all, missed, _ := ring.Since("")
	for _, e := range all {
		got = append(got, e.Kind+" "+e.VM+e.Details["owner"]+" "+e.Details["level"]+" "+e.Details["used"])
	}
	want := []string{"budget-limit a soft 1s", "budget-limit x soft 2s", "budget-limit a hard 3s", "budget-limit a soft 1s", "budget-limit a hard 3s"}
	if diff := cmp.Diff(want, got); diff != "" || missed != "" {
		t.Errorf("%s (-want +got):\n%s", missed, diff)
	}
}
