package tune

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

const us = time.Microsecond

// table returns a world by measured overheads, in percent.
func table(tasks uint64, total time.Duration, percent map[abi.Preempt]float64) *world {
	const slots = 8 * 132
	w := &world{shape: Shape{Tasks: tasks, Threads: 256}, slots: slots, rng: rand.New(rand.NewPCG(1, 1))}
	w.task = time.Duration(float64(total) * slots / float64(tasks))
	w.cost = func(c abi.Preempt) float64 {
		if v, ok := percent[c]; ok || c.Form == 0 {
			return v / 100
		}
		return 1 // not measured there
	}
	return w
}

func single() abi.Preempt { return abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1} }

func coarse(group uint32) abi.Preempt {
	return abi.Preempt{Form: abi.PreemptCoarse, Group: group, Every: 1}
}

func persistent(chunk, every uint32) abi.Preempt {
	return abi.Preempt{Form: abi.PreemptPersistent, Group: chunk, Every: every}
}

func TestOffered(t *testing.T) {
	for _, c := range []struct {
		p     abi.Preempt
		forms abi.PreemptForm
		tasks uint64
		slots int
		want  bool
	}{
		{abi.Preempt{}, 0, 1, 1, true}, // the original, always
		{abi.Preempt{Group: 1}, 7, 1, 1, false},
		{single(), abi.PreemptSingle, MaxBitmapUnits, 1, true},
		{single(), abi.PreemptSingle, MaxBitmapUnits + 1, 1, false}, // the skipped units would not fit
		{single(), abi.PreemptCoarse, 1, 1, false},
		{coarse(8), abi.PreemptCoarse, 8 * MaxBitmapUnits, 1, true},
		{coarse(8), abi.PreemptCoarse, 8*MaxBitmapUnits + 1, 1, false},
		{coarse(0), abi.PreemptCoarse, 1, 1, false},
		{persistent(4, 2), abi.PreemptPersistent, 1001, 1000, true},
		{persistent(4, 2), abi.PreemptPersistent, 1000, 1000, false}, // all fit at once
		{persistent(4, 2), abi.PreemptPersistent, abi.MaxPreemptTasks, 1000, true},
		{persistent(4, 2), abi.PreemptPersistent, abi.MaxPreemptTasks + 1, 1000, false},
		{persistent(4, 0), abi.PreemptPersistent, 1001, 1000, false},
		{abi.Preempt{Form: 3, Group: 1, Every: 1}, 7, 1001, 1000, false}, // two forms are no form
	} {
		if got := Offered(c.p, c.forms, c.tasks, c.slots); got != c.want {
			t.Errorf("Offered(%+v, %v, %d, %d) = %v", c.p, c.forms, c.tasks, c.slots, got)
		}
	}
}

// settle runs a tuner in a world for that many launches and returns the last choice that did not
// measure.
func settle(t *Tuner, w *world, launches int) (last abi.Preempt) {
	for range launches {
		c, k := t.Pick(w.shape, w.slots)
		if !k.measure {
			last = c
		}
		observe(t, k, w.run(c))
	}
	return last
}

// TestAtOnce has the first launch of a class go in a form before anything is known of it, and the
// next ones measure the original.
func TestAtOnce(t *testing.T) {
	const slots = 1000
	for _, c := range []struct {
		name  string
		p     Parameters
		forms abi.PreemptForm
		tasks uint64
		want  abi.Preempt
	}{
		{"nobody leaves", Parameters{}, 7, 5000, abi.Preempt{}},
		{"every form", Parameters{AtOnce: true}, 7, 5000, persistent(1, 1)},
		{"early exits alone", Parameters{AtOnce: true}, abi.PreemptSingle | abi.PreemptCoarse, 5000, abi.Preempt{}},
		{"no form", Parameters{AtOnce: true}, 0, 5000, abi.Preempt{}},
		{"all blocks fit", Parameters{AtOnce: true}, 7, slots, abi.Preempt{}},
	} {
		tuner, s := New(c.p, c.forms), Shape{Tasks: c.tasks, Threads: 256}
		if got, want := tuner.AtOnce(s), c.p.AtOnce && c.forms != 0; got != want {
			t.Errorf("%s: at once %v, want %v", c.name, got, want)
		}
		choice, k := tuner.Pick(s, slots)
		if choice != c.want || (k != Ticket{}) != (c.forms != 0 && c.want.Form == 0) {
			t.Errorf("%s: %+v, %+v, want %+v", c.name, choice, k, c.want)
		}
		tuner.Observe(k, time.Second, time.Second)
		if choice, k := tuner.Pick(s, slots); choice.Form != 0 || tuner.AtOnce(s) || k.measure != (c.forms != 0) {
			t.Errorf("%s: then %+v, measured %v", c.name, choice, k.measure)
		}
	}
	tuner := New(Parameters{AtOnce: true}, 7)
	if choice, _ := tuner.Pick(Shape{Tasks: 5000, Threads: 256}, 0); choice.Form != 0 {
		t.Errorf("without slots: %+v", choice)
	}
	if choice, _ := tuner.Pick(Shape{Tasks: 5000, Threads: 256}, slots); choice != persistent(1, 1) {
		t.Errorf("then with them: %+v", choice)
	}
}

// TestLaunchesCost has forms that cost next to nothing on the GPU but much beside it: that decides.
func TestLaunchesCost(t *testing.T) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 0.01, coarse(2): 1})
	for beside, want := range map[time.Duration]abi.Preempt{100 * us: single(), 500 * us: {}} {
		tuner := New(Parameters{}, 7)
		var c abi.Preempt
		for range 100 {
			var k Ticket
			c, k = tuner.Pick(w.shape, w.slots)
			ran, cost := w.run(c), w.run(c)
			if c.Form != 0 {
				cost += beside
			}
			tuner.Observe(k, ran, cost)
		}
		if r := tuner.Reports()[0]; c != want || r.Task < 265*us || r.Task > 275*us {
			t.Errorf("%v beside: %+v, %+v", beside, c, r)
		}
	}
}

// TestSlotsKnownLate starts with a wrong guess of how many blocks the GPU holds.
func TestSlotsKnownLate(t *testing.T) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 5, coarse(2): 1})
	w.task, w.slots = w.task/4, w.slots/4 // so that two tasks may run per check
	tuner := New(Parameters{}, 7)
	for range 30 { // unknown: nothing is measured
		if c, k := tuner.Pick(w.shape, 0); c.Form != 0 || k.measure {
			t.Fatalf("%+v, measured %v", c, k.measure)
		}
	}
	for range 30 {
		c, k := tuner.Pick(w.shape, 8000)
		observe(tuner, k, w.run(c))
	}
	if c := settle(tuner, w, 100); c != coarse(2) {
		t.Errorf("%+v, %+v", c, tuner.Reports())
	}
}

// TestShortUntilItIsNot has a kernel that is short at first and later has more to do.
func TestShortUntilItIsNot(t *testing.T) {
	w := table(65536, 400*us, map[abi.Preempt]float64{single(): 0.5, coarse(2): 0.5, coarse(4): 0.5, coarse(16): 0.5, coarse(64): 0.5, coarse(32): 0.5, coarse(8): 0.5})
	tuner := New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse)
	if c := settle(tuner, w, 100); c.Form != 0 || tuner.Reports()[0].Why != WhyShort || tuner.Reports()[0].Measured != tuner.params.Measure {
		t.Errorf("a short kernel: %+v, %+v", c, tuner.Reports())
	}
	w.task *= 40
	if c := settle(tuner, w, 100); c.Form == 0 || tuner.Reports()[0].Why != WhySoonest && tuner.Reports()[0].Why != WhyCheapest {
		t.Errorf("grown long: %+v, %+v", c, tuner.Reports())
	}
}

// TestLaunchesWithoutTimes ends with the original instead of measuring for ever.
func TestLaunchesWithoutTimes(t *testing.T) {
	tuner := New(Parameters{}, 7)
	measured := 0
	for range 1000 {
		_, k := tuner.Pick(Shape{Tasks: 1 << 20}, 1000)
		if k.measure {
			measured++
		}
		tuner.Discard(k)
	}
	if r := tuner.Reports()[0]; r.Why != WhyUnmeasured || r.Choice.Form != 0 || measured > 100 {
		t.Errorf("%d measured, %+v", measured, r)
	}
}

// TestPostponed has a kernel that is launched often before it is known which forms the GPU can hold:
// then they are measured, with as many launches as otherwise. If that never becomes known, measuring
// ends.
func TestPostponed(t *testing.T) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 0.01, coarse(2): 1})
	tuner := New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse)
	launch := func(known bool) {
		c, k := tuner.Pick(w.shape, w.slots)
		if c.Form != 0 && !known {
			tuner.Postpone(k)
			return
		}
		observe(tuner, k, w.run(c))
	}
	for range 1000 {
		launch(false)
	}
	if r := tuner.Reports()[0]; r.Why != WhyMeasuring || r.Choice.Form != 0 || r.Measured > 2*tuner.params.Measure {
		t.Errorf("not known yet: %+v", r)
	}
	for range 100 {
		launch(true)
	}
	if r := tuner.Reports()[0]; r.Choice != single() {
		t.Errorf("once it is known: %+v", r)
	}

	tuner = New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse)
	for range 2 * maxPostponed {
		launch(false)
	}
	if r := tuner.Reports()[0]; r.Why == WhyMeasuring || r.Choice.Form != 0 {
		t.Errorf("never known: %+v", r)
	}
}

// TestRecall checks that what was learned survives JSON and is not measured again.
func TestRecall(t *testing.T) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 0.01, coarse(2): 1})
	first := New(Parameters{}, 7)
	want := settle(first, w, 100)
	b, err := json.Marshal(first.Record())
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Record(), r); diff != "" || len(r.Classes) != 1 {
		t.Fatalf("record (-want +got):\n%s", diff)
	}
	second := New(Parameters{}, 7)
	second.Recall(r)
	c, k := second.Pick(w.shape, w.slots)
	if c != want || k.measure {
		t.Errorf("recalled %+v (measures: %v), want %+v", c, k.measure, want)
	}
	if got := settle(second, w, 2000); got != want {
		t.Errorf("after a while %+v, want %+v", got, want)
	}
	third := New(Parameters{}, abi.PreemptPersistent) // the form is not offered any more
	third.Recall(r)
	if c, k := third.Pick(w.shape, w.slots); c.Form != 0 || !k.measure {
		t.Errorf("a form that is gone: %+v, %v", c, k.measure)
	}
}

// TestRecallOfAnything checks that no record, however implausible, makes the tuner choose what is
// not offered.
func TestRecallOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Record
		for range rapid.IntRange(0, 30).Draw(t, "classes") {
			tasks := rapid.Uint64().Draw(t, "tasks")
			r.Classes = append(r.Classes, ClassRecord{
				Class: Shape{Tasks: tasks, Threads: rapid.Uint32Range(0, 2).Draw(t, "threads")}.Class(), Tasks: tasks,
				Slots: rapid.IntRange(-1, 2000).Draw(t, "slots"), Why: Why(rapid.IntRange(0, 9).Draw(t, "why")),
				Form: abi.PreemptForm(rapid.Uint32Range(0, 9).Draw(t, "form")), Group: rapid.Uint32Range(0, 9).Draw(t, "group"),
				Every:    rapid.Uint32Range(0, 9).Draw(t, "every"),
				Original: rapid.Float64().Draw(t, "original"), Chosen: rapid.Float64().Draw(t, "chosen"), Ran: rapid.Float64().Draw(t, "ran"),
			})
		}
		forms := abi.PreemptForm(rapid.IntRange(0, 7).Draw(t, "forms"))
		tuner := New(Parameters{}, forms)
		tuner.Recall(r)
		for _, k := range r.Classes {
			s := Shape{Tasks: k.Tasks, Threads: k.Threads}
			for range 20 {
				c, ticket := tuner.Pick(s, 100)
				if s.Tasks > 0 && !Offered(c, forms, s.Tasks, 100) {
					t.Fatalf("%+v for %+v", c, s)
				}
				observe(tuner, ticket, time.Millisecond)
			}
		}
		if len(tuner.classes) > MaxClasses {
			t.Fatalf("%d classes", len(tuner.classes))
		}
	})
}

func TestPickAllocatesNothing(t *testing.T) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 0.01})
	tuner := New(Parameters{}, 7)
	settle(tuner, w, 100)
	if n := testing.AllocsPerRun(1000, func() {
		c, k := tuner.Pick(w.shape, w.slots)
		observe(tuner, k, w.run(c))
	}); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
}

// BenchmarkPick measures what the choice adds to a launch.
func BenchmarkPick(b *testing.B) {
	w := table(65536, 16816*us, map[abi.Preempt]float64{single(): 0.01})
	tuner := New(Parameters{}, 7)
	settle(tuner, w, 100)
	b.ReportAllocs()
	for b.Loop() {
		_, k := tuner.Pick(w.shape, w.slots)
		observe(tuner, k, 16816*us)
	}
}
