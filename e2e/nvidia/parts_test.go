package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
)

func TestEvictionIsHeldToItsChunk(t *testing.T) {
	for name, c := range map[string]struct {
		form    tenant.Form
		longest float64
		want    float64
	}{
		"a short task":    {tenant.Form{Form: 1, Group: 1, Task: 10 * time.Microsecond}, 0, 35},
		"a chunk of them": {tenant.Form{Form: 4, Group: 8, Task: 10 * time.Microsecond}, 70, 105},
		"a longer one":    {tenant.Form{Form: 4, Group: 1, Task: 100 * time.Microsecond}, 120, 145},
	} {
		e := eviction{form: c.form, longest: c.longest}
		if got := chunkBound(&e); got != c.want {
			t.Errorf("%s: %v µs, want %v", name, got, c.want)
		}
	}
}

// TestEvictionRowIsTheWorstKernels holds that one kernel above its bound is a goal missed, however
// many are below theirs, that the daemon's evictions are told from a program's, and that those that
// stay as they are are none of these.
func TestEvictionRowIsTheWorstKernels(t *testing.T) {
	stops := [][]float64{{300, 310, 320}, {330, 340, 700}}
	short := tenant.Form{Form: 1, Group: 1, Task: 5 * time.Microsecond}
	found := []eviction{
		{name: "left as it is", form: tenant.Form{Form: 0}, p50: []float64{4000}, p99: []float64{5000}, count: 1000},
		{name: "slow but allowed", form: tenant.Form{Form: 1, Group: 1, Task: time.Millisecond}, p50: []float64{900}, p99: []float64{200}, count: leastForPercentile,
			own: [][]float64{{300, 340}, {310, 300}}},
		{name: "quick but not enough", form: short, p50: []float64{50, 40, 45}, p99: []float64{390, 500, 370}, count: leastForPercentile,
			own: [][]float64{{20, 25, 20}, {20, 30, 20}}},
		{name: "too few for a percentile", form: short, p50: []float64{44}, p99: []float64{9000}, count: leastForPercentile - 1},
	}
	b := &bench{options: &options{progress: t.Output()}, found: &report.File{}}
	row := map[string]report.Row{}
	for _, k := range evictionRows {
		row[k.id] = b.evictionRow(&k, found, stops)
	}
	r := row["evict_us_p50"]
	if r.Value != 45 || r.Goal != 30 || r.Met || r.Runs != 3 || r.Spread != 10 || len(r.Detail.Lines) != len(found) || r.Baseline["hardware_suspension_us_p50"] != 325 || !strings.Contains(r.How, "Above the bound: 2 of 3 kernels") {
		t.Errorf("the daemon's median: %+v", r)
	}
	r = row["evict_us_p99"]
	if r.Value != 390 || r.Goal != hardwareSuspension || r.Met || r.Baseline["hardware_suspension_us_p99"] != 700 {
		t.Errorf("the daemon's percentile: %+v", r)
	}
	r = row["evict_own_us_p50"]
	if r.Value != 20 || r.Goal != 30 || !r.Met || r.Runs != 2 {
		t.Errorf("a program's median: %+v", r)
	}
	r = row["evict_own_us_p99"]
	if r.Value != 340 || r.Goal != hardwareSuspension || !r.Met {
		t.Errorf("a program's percentile: %+v", r)
	}
	b.add(b.evictionRow(&evictionRows[0], found[:1], stops))
	if len(b.found.Rows) != 0 {
		t.Errorf("nothing leaves by itself: %+v", b.found.Rows)
	}
}

// TestWhatWasNotMeasuredIsNoRow keeps what is no number out of the file, which could not hold it.
func TestWhatWasNotMeasuredIsNoRow(t *testing.T) {
	b := &bench{options: &options{progress: t.Output()}, found: &report.File{}}
	r := b.row("share_error", []float64{0.01}, "how")
	r.Baseline["none"], r.Baseline["some"] = math.NaN(), 1
	aimless := b.row("fair_distance", []float64{1}, "how")
	aimless.Hold(math.NaN())
	b.add(r, b.row("host_cpu", nil, "how"), b.rowOf("suspend_ms", 1, nil, "how"), aimless)
	if len(b.found.Rows) != 1 || len(b.found.Rows[0].Baseline) != 1 {
		t.Errorf("%+v", b.found.Rows)
	}
}

// TestQuickKernelsExist holds that what is measured when time is short is of the whole.
func TestQuickKernelsExist(t *testing.T) {
	b := &bench{options: &options{quick: true}}
	for _, name := range transformQuick {
		if !slices.Contains(tenant.Scaled(), name) {
			t.Errorf("no scaled kernel %q", name)
		}
	}
	for _, j := range b.longKernels() {
		if !slices.Contains(tenant.Scaled(), j.Scaled) {
			t.Errorf("no scaled kernel %q", j.Scaled)
		}
	}
	for _, name := range featureTests {
		if _, ok := corpus.ByName(name); !ok {
			t.Errorf("no kernel %q", name)
		}
	}
	full := &bench{options: &options{}}
	for _, name := range b.appNames() {
		if !slices.Contains(full.appNames(), name) {
			t.Errorf("no program %q", name)
		}
	}
}

// TestFairDistanceGoesByMediansOverRuns has programs that are fair in the median, and in no run of
// two alike.
func TestFairDistanceGoesByMediansOverRuns(t *testing.T) {
	found := []fairMeasure{
		{turns: map[string][]float64{"dfq": {2, 4, 8}, "none": {8, 8, 8}, "neon": {12}}, fair: []float64{4, 4, 4}},
		{turns: map[string][]float64{"dfq": {3, 6, 3}, "none": {6, 3, 12}, "neon": {9}}, fair: []float64{3, 2, 6}},
	}
	for scheme, want := range map[string]struct {
		all  float64
		runs []float64
	}{
		"dfq":     {1, []float64{math.Sqrt2, math.Sqrt(3), 2}},
		"none":    {2, []float64{2, math.Sqrt(3), 2}},
		"neon":    {3, []float64{3}},
		"loga-cl": {math.NaN(), nil},
	} {
		all, runs := distances(found, scheme)
		if diff := cmp.Diff(want.all, all, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", scheme, diff)
		}
		if diff := cmp.Diff(want.runs, runs, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s, by run (-want +got):\n%s", scheme, diff)
		}
	}
	c := &crowd{bench: &bench{options: &options{}}, apps: []app{{name: "one"}, {name: "two"}}}
	r := c.fairRow(found)
	if r.Value < 1-1e-9 || r.Value > 1+1e-9 || r.Runs != 3 || r.Goal < 2-1e-9 || r.Goal > 2+1e-9 || !r.Met || len(r.Detail.Lines) != 2+3 {
		t.Errorf("%+v", r)
	}
}

// TestNoSchemeIsAlwaysTheFirst holds that each scheme comes first and last for a program, and for
// each other program in a run.
func TestNoSchemeIsAlwaysTheFirst(t *testing.T) {
	for _, c := range []struct{ run, program, otherRun, otherProgram int }{{0, 0, 0, 1}, {0, 0, 1, 0}, {2, 3, 2, 4}, {1, 28, 2, 28}} {
		one, other := turnOf(c.run, c.program), turnOf(c.otherRun, c.otherProgram)
		slices.Reverse(other)
		if diff := cmp.Diff(one, other); diff != "" || len(one) != len(fairSchemes)-1 {
			t.Errorf("%+v (-one +other, in reverse):\n%s", c, diff)
		}
	}
}

// TestTurnaroundGoesFromEndToEnd has iterations of three launches.
func TestTurnaroundGoesFromEndToEnd(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		ran  tenant.Ran
		want time.Duration
	}{
		"by ends":                  {tenant.Ran{Launches: 6, Window: 100 * ms, Span: 90 * ms}, 45 * ms},
		"by one end after another": {tenant.Ran{Launches: 1, Window: 100 * ms, Span: 90 * ms}, 270 * ms},
		"then it was stopped":      {tenant.Ran{Launches: 3, Window: 100 * ms}, 100 * ms},
		"none ended before":        {tenant.Ran{Launches: 6, Window: 100 * ms}, 50 * ms},
		"none ended":               {tenant.Ran{Window: 100 * ms}, 0},
	} {
		if got := turnaround(&c.ran, 3); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestCostGoesByMediansOverRuns has one program that costs half as much again in the median, and
// one with NEON's cost in the only run that it has.
func TestCostGoesByMediansOverRuns(t *testing.T) {
	m := &costMeasure{times: make([][watches][]float64, 2)}
	m.times[0][byNobody], m.times[0][byDaemon] = []float64{2, 2, 4}, []float64{3, 9, 3}
	m.times[1][byNobody], m.times[1][byDaemon], m.times[1][byNeon] = []float64{1, 1, 1}, []float64{1.5, 1.5, 1.5}, []float64{7}
	all, runs := m.overhead(byDaemon, byNobody)
	want := []float64{0.5, math.Sqrt(4.5*1.5) - 1, math.Sqrt(0.75*1.5) - 1}
	if diff := cmp.Diff(want, runs, cmpopts.EquateApprox(0, 1e-9)); math.Abs(all-0.5) > 1e-9 || diff != "" {
		t.Errorf("%v, by run (-want +got):\n%s", all, diff)
	}
	if all, runs := m.overhead(byNeon, byNobody); math.Abs(all-6) > 1e-9 || len(runs) != 1 {
		t.Errorf("NEON's: %v, by run %v", all, runs)
	}
	// A third program, so that the median is not the mean of two.
	m.times = append(m.times, [watches][]float64{byNobody: {1, 1, 1}, byDaemon: {3, 1, 1}})
	all, runs = m.typical(byDaemon, byNobody)
	if diff := cmp.Diff([]float64{0.5, 0.5, 0}, runs, cmpopts.EquateApprox(0, 1e-9)); math.Abs(all-0.5) > 1e-9 || diff != "" {
		t.Errorf("the median program's: %v, by run (-want +got):\n%s", all, diff)
	}
}

// TestCostSaysWhatProgramsMakeItsMeans has a mean that one of three programs makes, and a column
// that nothing was measured of.
func TestCostSaysWhatProgramsMakeItsMeans(t *testing.T) {
	b := &bench{options: &options{}}
	r := b.rowOf("accounting_cost_10us", 0.03, []float64{0.01, 0.1}, "how")
	r.Detail = detail("ms without", "daemon", "NEON", "nobody")
	r.Detail.Add("one", 5, 0.01, 147, math.NaN())
	r.Detail.Add("two", 6, 0.02, math.NaN(), math.NaN())
	r.Detail.Add("three", 7, 0.9, 0.5, math.NaN())
	if got, want := medians(&r), ": daemon 0.0200 (3), NEON 73.7500 (2). The spread is more than the value itself"; !strings.Contains(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	r.Value = 0.5
	if got := medians(&r); strings.Contains(got, "spread") {
		t.Errorf("of a spread below the value: %q", got)
	}
}

// TestUrgentRowsAreOfPauses holds that the goals are about kernels after pauses, with those back to
// back as further rows, and that what the batch guest keeps is a goal, too.
func TestUrgentRowsAreOfPauses(t *testing.T) {
	u := &contest{
		bench: &bench{options: &options{}, found: &report.File{}}, form: &tenant.Form{Form: 4, Group: 2}, without: errors.New("there is none"), rushes: rushes[:3],
		medians: map[string][][]float64{hpfWorld: {nil, {130}, {400}}, "guest alone": {nil, {120}, {150}}, "default": {nil, {2600}, {1300}}},
		kept:    map[string][][]float64{hpfWorld: {nil, {0}, {0.7}}},
	}
	u.report()
	got := map[string]float64{}
	for _, r := range u.found.Rows {
		got[r.ID] = r.Value
	}
	want := map[string]float64{
		"urgent_added_us": 250, "urgent_speedup_default": 3.25, "urgent_batch_kept": 0.7, "urgent_speedup_mps": measuredMPS / 400.0,
		"urgent_back_to_back_added_us": 10, "urgent_back_to_back_speedup_default": 20, "urgent_back_to_back_batch_kept": 0, "urgent_back_to_back_speedup_mps": measuredMPS / 130.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if r := u.found.Row("urgent_batch_kept"); r.Met {
		t.Errorf("%+v", r)
	}
}

// TestNeonHasWholeRounds holds that a program's windows under NEON are not shorter than its rounds,
// beside figure 7's throttles and figure 11's.
func TestNeonHasWholeRounds(t *testing.T) {
	b := &bench{options: &options{}}
	c := &crowd{bench: b}
	for guests, got := range map[int]time.Duration{1 + costThrottles: b.neonWindow(1 + costThrottles), 1 + fairThrottles: c.fairWindow("neon")} {
		if got < 5*neonConfig.RoundLength(guests) || c.aloneWindow("neon") < c.fairWindow("neon") {
			t.Errorf("%d guests: %v", guests, got)
		}
	}
	for _, name := range likePapers {
		if !slices.Contains(b.appNames(), name) {
			t.Errorf("no program %q", name)
		}
	}
}

// TestBatchKeepsWhatItLaunchedOfThatAlone has kernels of 20 ms in windows of 800.
func TestBatchKeepsWhatItLaunchedOfThatAlone(t *testing.T) {
	const window = 800 * time.Millisecond
	for name, c := range map[string]struct {
		launches int
		alone    time.Duration
		want     float64
	}{
		"as many as alone":     {40, batchLength, 1},
		"some":                 {10, batchLength, 0.25},
		"none":                 {0, batchLength, 0},
		"nobody knows of what": {10, 0, math.NaN()},
	} {
		// The only end is at the beginning.
		got := kept(&tenant.Ran{Launches: c.launches, Window: window, Span: batchLength}, c.alone)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFormsThatComputeAnotherThingMeetNoGoal has a form that costs nothing, and what it computes is
// not the original's.
func TestFormsThatComputeAnotherThingMeetNoGoal(t *testing.T) {
	for _, same := range []bool{true, false} {
		b := &bench{options: &options{progress: t.Output()}, found: &report.File{}}
		err := b.transformRows([]formCost{
			{name: "one", chosen: []float64{0.001, 0.002}, same: true}, {name: "two", chosen: []float64{0, 0.001}, same: same},
		}, nil)
		if (err == nil) != same || len(b.found.Rows) != 2 {
			t.Errorf("the same %v: %d rows, %v", same, len(b.found.Rows), err)
		}
		for _, r := range b.found.Rows {
			if r.Met != same || (r.Why == "") != same {
				t.Errorf("the same %v: %+v", same, r)
			}
		}
	}
}

// TestUsedIsOfAllGuests holds that a guest that the daemon does not know has not used nothing.
func TestUsedIsOfAllGuests(t *testing.T) {
	vms := []api.VM{{Name: "b", GPUSeconds: 2}, {Name: "a", GPUSeconds: 0.5}, {Name: "c"}}
	used, err := usedBy(vms, []*member{{name: "a"}, {name: "b"}})
	if diff := cmp.Diff([]time.Duration{500 * time.Millisecond, 2 * time.Second}, used); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if used, err := usedBy(vms, []*member{{name: "a"}, {name: "d"}}); err == nil {
		t.Errorf("a guest that there is not has used %v", used)
	}
}

// TestUrgentTableHasBothPrograms has one world that was measured, and one in which only the first
// rush was.
func TestUrgentTableHasBothPrograms(t *testing.T) {
	u := &contest{
		rushes:  rushes[:2],
		medians: map[string][][]float64{hpfWorld: {{10}, {130, 140, 150}}, "default": {{100}, nil}},
		kept:    map[string][][]float64{hpfWorld: {{0.1}, {0.25, 0.5, 0.75}}, "default": {{0.9}, nil}},
	}
	want := []string{
		"{10µs [NaN NaN 10 NaN 100 NaN 10 NaN 0.1 NaN 0.9 NaN]}",
		"{100µs [NaN NaN 140 NaN NaN NaN NaN NaN 0.5 NaN NaN NaN]}",
	}
	table := u.table()
	var got []string
	for _, l := range table.Lines {
		got = append(got, fmt.Sprint(l))
		if len(l.Values) != len(table.Columns) {
			t.Errorf("%d values in %d columns", len(l.Values), len(table.Columns))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
