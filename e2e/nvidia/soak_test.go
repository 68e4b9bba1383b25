package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/mischief"
	"vgpud/e2e/nvidia/report"
)

func seatsMay() (may [][]action) {
	for _, seat := range soakSeats {
		may = append(may, seat.may)
	}
	return may
}

// TestSoakIsAFunctionOfItsSeed holds that a plan can be had again, and what there is in it.
func TestSoakIsAFunctionOfItsSeed(t *testing.T) {
	const long = usualSoak
	p := planned(7, long, seatsMay())
	if diff := cmp.Diff(p, planned(7, long, seatsMay()), cmp.AllowUnexported(plan{}, event{}, urgentPeriod{})); diff != "" {
		t.Errorf("once more it is another (-once +again):\n%s", diff)
	}
	if cmp.Equal(p, planned(8, long, seatsMay()), cmp.AllowUnexported(plan{}, event{}, urgentPeriod{})) {
		t.Error("another seed makes the same")
	}
	for i, events := range p.guests {
		of := make(map[action]int)
		last := time.Duration(0)
		for _, e := range events {
			of[e.do]++
			if e.at <= last || e.at >= long || e.lasts <= 0 || !slices.Contains(shareWeights, e.weight) {
				t.Errorf("%s: %+v after one at %v", soakSeats[i].name, e, last)
			}
			last = e.at
		}
		for d := range action(len(actionNames)) {
			if may := slices.Contains(soakSeats[i].may, d); may != (of[d] > 0) {
				t.Errorf("%s: %d × %v, which may be: %v", soakSeats[i].name, of[d], d, may)
			}
		}
		least, most := len(events), 0
		for _, d := range soakSeats[i].may {
			least, most = min(least, of[d]), max(most, of[d])
		}
		if most > least+1 {
			t.Errorf("%s: of one action %d and of another %d", soakSeats[i].name, most, least)
		}
	}
	last := time.Duration(0)
	for _, h := range p.urgentPeriods {
		if h.from <= last || h.to <= h.from || h.to > long {
			t.Errorf("hpf %+v after %v", h, last)
		}
		last = h.to
	}
	modes := slices.Sorted(slices.Values(p.modes))
	if diff := cmp.Diff(slices.Sorted(slices.Values(mischief.Modes())), modes); diff != "" || len(p.spells) != len(modes) {
		t.Errorf("mischief (-want +got):\n%s", diff)
	}
	if len(p.guests)+1 != 6 || len(p.urgentPeriods) < 10 {
		t.Errorf("%d guests and the hostile one, %d times hpf", len(p.guests), len(p.urgentPeriods))
	}
}

// TestFootprintTellsWhatIsKept has less of some things and more of others.
func TestFootprintTellsWhatIsKept(t *testing.T) {
	before := footprint{free: 10 << 20, open: map[string]int{"socket": 2, "/dev/nvidiactl": 1}, children: 2, goroutines: 20}
	for name, c := range map[string]struct {
		now    footprint
		memory float64
		things int
	}{
		"the same":                {before, 0, 0},
		"less of all":             {footprint{free: 11 << 20, open: map[string]int{"socket": 1}, children: 1}, 0, 0},
		"memory":                  {footprint{free: 8 << 20, open: before.open}, 2 << 20, 0},
		"one of another kind":     {footprint{free: 10 << 20, open: map[string]int{"socket": 1, "/dev/nvidiactl": 2}}, 0, 1},
		"a process and a guest":   {footprint{free: 10 << 20, children: 3, guests: 1}, 0, 2},
		"contexts and goroutines": {footprint{free: 10 << 20, noted: 2, goroutines: 23}, 0, 5},
	} {
		if memory, things := before.kept(&c.now); memory != c.memory || things != c.things {
			t.Errorf("%s: %v bytes, %d things", name, memory, things)
		}
	}
	if got := kindOf("socket:[1234]"); got != "socket" {
		t.Errorf("a socket is %q", got)
	}
	want := []string{"1 × /dev/nvidiactl"}
	if diff := cmp.Diff(want, before.opened(&footprint{open: map[string]int{"/dev/nvidiactl": 2, "socket": 2}})); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

func TestGoroutinesAreCounted(t *testing.T) {
	dump := "SIGQUIT: quit\n\ngoroutine 0 gp=0x1 [idle]:\nmain\n\ngoroutine 7 gp=0x2 m=nil [GC worker (idle)]:\nx\ncreated by runtime.gcBgMarkStartWorkers in goroutine 1\n\ngoroutine 9 [select, 2 minutes]:\ncreated by x in goroutine 7\n"
	if n := goroutinesIn(dump); n != 2 {
		t.Errorf("%d goroutines", n)
	}
}

// TestSoakRowsSayWhatWentWrong has two seats whose errors are opposite in part, something lost and
// something not recovered.
func TestSoakRowsSayWhatWentWrong(t *testing.T) {
	s := &soaked{
		bench: &bench{options: &options{progress: t.Output(), seed: 3}, found: &report.File{}},
		seats: []seatAt{
			{seatSpec: seatSpec{name: "one"}, alone: time.Millisecond, sum: counted{kernels: 1000, accounted: 1500 * time.Millisecond}},
			{seatSpec: seatSpec{name: "other"}, alone: 2 * time.Millisecond, sum: counted{kernels: 1000, accounted: 1700 * time.Millisecond}},
		},
		saw: soakFound{done: map[string]int{"left": 4}, failed: map[string]int{"left": 1}, lost: []string{"a result"}, why: []string{"a reason"}, standstill: standstill{who: "one", from: 20 * time.Second, took: 1500 * time.Millisecond},
			timeline: []happening{
				{"one", "long before", 17 * time.Second, 18900 * time.Millisecond},
				{"one", "just before", 18 * time.Second, 19500 * time.Millisecond},
				{"other", "in it", 20500 * time.Millisecond, 21 * time.Second},
				{"other", "still", 21 * time.Second, 0},
				{"other", "after", 21600 * time.Millisecond, 22 * time.Second},
			}},
	}
	before := footprint{free: 4 << 20, goroutines: 5}
	after := footprint{free: 2 << 20, goroutines: 6}
	s.report(10*time.Second, 0.001, &before, &before, &after)
	want := map[string]float64{"soak_lost": 1, "soak_accounting_error": 0.02, "soak_memory_kept": 2, "soak_kept": 1, "soak_not_recovered": 1, "soak_standstill_ms": 1500}
	got := make(map[string]float64)
	for _, r := range s.bench.found.Rows {
		if got[r.ID] = math.Round(1e6*r.Value) / 1e6; r.Met {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	var listed []string
	for _, l := range s.bench.found.Row("soak_standstill_ms").Detail.Lines {
		listed = append(listed, fmt.Sprint(l.Name, l.Values))
	}
	if diff := cmp.Diff([]string{"one: just before[-2 -0.5]", "other: in it[0.5 1]", "other: still[1 1.5]"}, listed); diff != "" {
		t.Errorf("events beside the standstill (-want +got):\n%s", diff)
	}
	if worst := s.bench.found.Row("soak_accounting_error").Baseline["worst_seat"]; worst != 0.05 {
		t.Errorf("the worst seat is %v off", worst)
	}
}
