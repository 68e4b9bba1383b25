package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/ipc"
)

// trialOf returns one of the runs of a policy.
func trialOf(policy, quota, load string, guests int, length time.Duration) *trial {
	t := &trial{policy: policy, quota: quota, load: load, guests: guests, length: length}
	t.compose()
	return t
}

// TestRunsAreTheSame runs a trial of each kind twice: all that it shows is the same each time.
func TestRunsAreTheSame(t *testing.T) {
	for _, policy := range []string{"dfq", "ffs"} {
		for _, quota := range quotas {
			once := func() *outcome {
				o, err := trialOf(policy, quota, mixed, 4, 2*time.Second).run()
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			if diff := cmp.Diff(once(), once(), cmp.AllowUnexported(outcome{}, mark{}, spent{})); diff != "" {
				t.Errorf("%s, %s: the second run differs (-first +second):\n%s", policy, quota, diff)
			}
		}
	}
}

// TestTimeAddsUp checks the model's own sums: guests that always have work use all time but for
// switches between contexts.
func TestTimeAddsUp(t *testing.T) {
	for _, policy := range []string{"none", "ffs"} {
		trial := trialOf(policy, budgets, steady, 4, 3*time.Second)
		for _, p := range trial.programs {
			p.budget = 0
		}
		o, err := trial.run()
		if err != nil {
			t.Fatal(err)
		}
		first, last := o.marks[0], o.marks[len(o.marks)-1]
		var used time.Duration
		for i := range first {
			used += last[i].used - first[i].used
			if got, want := last[i].working-first[i].working, 3*time.Second-step; got < want {
				t.Errorf("%s: guest %d had work for %v, want %v", policy, i, got, want)
			}
			if m := last[i]; m.available > m.working || m.stuck > m.available {
				t.Errorf("%s: guest %d: %+v", policy, i, m)
			}
		}
		available := last[0].available - first[0].available
		if used > available || float64(used) < 0.9*float64(available) {
			t.Errorf("%s: all used %v of %v", policy, used, available)
		}
	}
}

// TestMeasure computes distances from sums that were written down by hand.
func TestMeasure(t *testing.T) {
	trial := &trial{quota: capsOfAll, programs: []*program{
		{terms: ipc.Terms{Cap: 0.2}}, {terms: ipc.Terms{Guarantee: 0.5}}, {budget: time.Second},
	}}
	o := &outcome{round: 20 * time.Millisecond, spent: []spent{{}, {}, {charged: 1010 * time.Millisecond, used: 1020 * time.Millisecond}}}
	for i := range int(window/step) + 2 {
		d := time.Duration(i) * step
		o.marks = append(o.marks, []mark{
			{used: d / 4, working: d, available: d},
			// It had work for half of the time, and kernels of suspended guests ran for a tenth.
			{used: d / 10, working: d / 2, available: d / 2, stuck: d / 10},
			{used: time.Second + 50*time.Millisecond},
		})
	}
	got := trial.measure(o)
	want := distances{over: 5, lacked: 15, taken: 10, overrun: 2.5, charged: 0.5, ranOn: 1.5, missed: 0.5}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(distances{}), near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConclusions checks that a missed goal is said, with where and how often.
func TestConclusions(t *testing.T) {
	r := &report{Measures: []measure{{Name: "a", Unit: "points", Goal: 2}, {Name: "b", Unit: "points", Goal: 2}, {Name: "c", Unit: "points"}}}
	here, there := &trial{policy: "dfq", guests: 2, load: steady}, &trial{policy: "dfq", guests: 4, load: mixed}
	r.row("a", here).add(1, 2, "here")
	r.row("a", here).add(1.5, 2, "here again")
	r.row("b", here).add(1, 2, "here")
	r.row("b", there).add(3, 2, "there")
	r.row("c", there).add(9, 2, "there")
	want := []string{
		"a: at most 2 points: yes; 1.50 at worst (here again).",
		"b: at most 2 points: **no**, missed in 1 of 2 runs; 3.00 at worst (there).",
	}
	if diff := cmp.Diff(want, r.conclusions()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPageIsOfTheResults checks that the page in docs/results is that of the JSON file beside it.
func TestPageIsOfTheResults(t *testing.T) {
	const dir = "../../docs/results"
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(dir + "/quota.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(r.page(), "\n"), strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("docs/results/quota.md is not what quota.json gives: run make bench-quota (-want +got):\n%s", diff)
	}
}

// TestGuaranteeOfOneThatOnlyWaits runs a guest with long kernels beside one with short ones, which
// go first. The GPU is idle for a moment between two of these, which the waiting guest does not
// leave unused.
func TestGuaranteeOfOneThatOnlyWaits(t *testing.T) {
	guaranteed(t, &trial{policy: "hpf", quota: guarantees, load: steady, guests: 2, length: window + step, programs: []*program{
		{name: "long", length: 900 * time.Microsecond, terms: ipc.Terms{Weight: 1, Guarantee: 0.4}},
		{name: "short", length: 70 * time.Microsecond, terms: ipc.Terms{Weight: 1}},
	}})
}

// TestGuaranteeOfOnesThatCome runs guests that come in the middle of phases in which the GPU was idle
// before, and then only wait.
func TestGuaranteeOfOnesThatCome(t *testing.T) {
	for _, draw := range []uint64{0, 2} {
		trial := &trial{policy: "hpf", quota: guarantees, load: comeGo, draw: draw, guests: 8, length: lengthByKernel}
		trial.compose()
		guaranteed(t, trial)
	}
}

// guaranteed runs guests, all of which must have their guarantees.
func guaranteed(t *testing.T, trial *trial) {
	t.Helper()
	o, err := trial.run()
	if err != nil {
		t.Fatal(err)
	}
	if d := trial.measure(o); d.lacked > 2 {
		t.Errorf("%s lacked %.2f points of a guarantee, of which kernels that could not be taken off the GPU account for %.2f", trial.name(), d.lacked, d.lacked-d.taken)
	}
}

// TestQuotasHold runs guests that come and go, pause, or compute at times, with each kind of quota.
func TestQuotasHold(t *testing.T) {
	for _, policy := range []string{"none", "dfq"} {
		for _, quota := range quotas {
			trial := trialOf(policy, quota, mixed, 8, 2*window)
			o, err := trial.run()
			if err != nil {
				t.Fatal(err)
			}
			if d := trial.measure(o); d.over > 2 || d.under > 2 || d.taken > 2 || d.charged > 1 || d.overrun > 1 {
				t.Errorf("%s, %s: %+v", policy, quota, d)
			}
		}
	}
}

// TestBudgetsHoldByTheGPUsCount runs guests whose charges happen to be too low, or who have kernels on
// the GPU when their budgets are spent.
func TestBudgetsHoldByTheGPUsCount(t *testing.T) {
	for _, trial := range []*trial{
		{policy: "none", load: pauses, draw: 3, guests: 2},
		{policy: "dfq", load: steady, draw: 3, guests: 8},
		{policy: "none", load: comeGo, draw: 1, guests: 2},
	} {
		trial.quota, trial.length = budgets, length
		trial.compose()
		o, err := trial.run()
		if err != nil {
			t.Fatal(err)
		}
		if d := trial.measure(o); d.overrun > 1 {
			t.Errorf("%s: %.2f rounds beyond a budget", trial.name(), d.overrun)
		}
	}
}

// TestCapOfOneThatWaited runs a guest that pauses after each kernel and waits for others with shorter
// ones. It is not held for using more when they leave, as far as it had less before.
func TestCapOfOneThatWaited(t *testing.T) {
	trial := trialOf("hpf", capsOfAll, mixed, 4, lengthByKernel)
	o, err := trial.run()
	if err != nil {
		t.Fatal(err)
	}
	if d := trial.measure(o); d.under > 1 || d.over > 1 {
		t.Errorf("%s: a guest that was held had %.2f points less than its cap, another %.2f more", trial.name(), d.under, d.over)
	}
}
