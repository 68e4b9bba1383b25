package tenant

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeGPU runs every launch at once.
type fakeGPU struct {
	machine
	most, under int // launches under way
	takes       time.Duration
	log         []command
}

func (f *fakeGPU) lines(int, bool) {}

func (f *fakeGPU) launch(_ context.Context, _ int, c *command) error {
	f.under++
	f.most = max(f.most, f.under)
	f.log = append(f.log, *c)
	return nil
}

func (f *fakeGPU) wait(context.Context, int) (done, error) {
	f.under--
	time.Sleep(f.takes) // of simulated time
	return done{start: 1, end: 3}, nil
}

func newFake(steps int) (*tenant, *fakeGPU) {
	f := &fakeGPU{}
	j := &job{}
	for i := range steps {
		j.steps = append(j.steps, command{grid: [3]uint32{uint32(10 * (i + 1)), 1, 1}})
	}
	return &tenant{machine: f, jobs: []*job{j}}, f
}

func TestRunCountsIterations(t *testing.T) {
	tn, f := newFake(3)
	ran, err := tn.run(t.Context(), &Run{Count: 4, Rounds: 2, Depth: 5})
	if err != nil {
		t.Fatal(err)
	}
	if ran.Iterations != 4 || ran.All != 24 || len(ran.Turnarounds) != 4 || f.most != 5 || f.under != 0 {
		t.Errorf("%+v, at most %d under way, %d left", ran, f.most, f.under)
	}
	if ran.Executed[0] != 2 {
		t.Errorf("a launch took %v on the GPU", ran.Executed[0])
	}
}

func TestRunEndsInTheMiddleOfAnIteration(t *testing.T) {
	tn, f := newFake(1)
	begin := time.Now()
	ran, err := tn.run(t.Context(), &Run{For: 20 * time.Millisecond, Rounds: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if ran.Iterations != 0 || len(ran.Turnarounds) != 0 || ran.All != len(f.log) || ran.Launches > ran.All || f.under != 0 {
		t.Errorf("%d of %d launches, %d iterations, %d left", ran.Launches, ran.All, ran.Iterations, f.under)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRunGoesOnAfterTheWindow has more launches than are counted, before the window and after it.
func TestRunGoesOnAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, f := newFake(1)
		f.takes = time.Millisecond
		ran, err := tn.run(t.Context(), &Run{Warm: 10 * time.Millisecond, For: 20 * time.Millisecond, After: 30 * time.Millisecond, Rounds: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		// Those that end at the window's first and last instant are in it.
		if ran.Launches != 21 || ran.All != 60 || ran.Window != 20*time.Millisecond || ran.Span != 21*time.Millisecond {
			t.Errorf("%d launches in %v of %v, %d in all", ran.Launches, ran.Span, ran.Window, ran.All)
		}
	})
}

// TestSpanIsFromEndToEnd has launches end in bursts of two in every eight milliseconds.
func TestSpanIsFromEndToEnd(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(ms ...int) (all []ended) {
		for _, m := range ms {
			all = append(all, ended{at: begin.Add(time.Duration(m) * time.Millisecond)})
		}
		return all
	}
	from, to := begin.Add(10*time.Millisecond), begin.Add(30*time.Millisecond)
	for name, c := range map[string]struct {
		iterations [][]ended
		launches   int
		span       time.Duration
	}{
		"ends before, in and after it": {[][]ended{at(0, 1, 8), at(9, 16, 17), at(24, 25, 32)}, 4, 16 * time.Millisecond},
		"one in it":                    {[][]ended{at(9), at(25)}, 1, 16 * time.Millisecond},
		"none in it":                   {[][]ended{at(9, 32)}, 0, 0},
		"none before it":               {[][]ended{at(16, 24)}, 2, 0},
		"none in the second half":      {[][]ended{at(9, 11, 13, 15, 17), at(45)}, 4, 0},
		"long ones, at its beginning":  {[][]ended{at(0), at(10, 50)}, 1, 0},
		"long ones, some time in it":   {[][]ended{at(2), at(16), at(31)}, 1, 14 * time.Millisecond},
	} {
		var ran Ran
		var w worker
		for _, i := range c.iterations {
			w.ended = i
			ran.count(&w, begin, to, from, to)
		}
		if ran.spanned(&w, to); ran.Launches != c.launches || ran.Span != c.span {
			t.Errorf("%s: %d launches in %v, want %d in %v", name, ran.Launches, ran.Span, c.launches, c.span)
		}
	}
}

func TestSlicesHaveAllBlocks(t *testing.T) {
	launches := []command{{grid: [3]uint32{10, 1, 1}}, {grid: [3]uint32{4, 7, 1}}, {grid: [3]uint32{2, 1, 1}}}
	var got [][3]uint32
	for _, s := range sliced(launches, 3) {
		got = append(got, s.grid)
	}
	want := [][3]uint32{{3, 1, 1}, {3, 1, 1}, {4, 1, 1}, {4, 2, 1}, {4, 2, 1}, {4, 3, 1}, {1, 1, 1}, {1, 1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grids (-want +got):\n%s", diff)
	}
}

func TestArgumentsLieWhereParametersDo(t *testing.T) {
	got, err := place("k", []int{0, 8, 16}, []int{4, 8, 4}, [][]byte{u32(1), u64(2), u32(3)})
	want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := place("k", []int{0}, []int{8}, [][]byte{u32(1)}); err == nil {
		t.Error("a parameter of the wrong size")
	}
	if _, err := place("k", []int{0}, []int{4}, nil); err == nil {
		t.Error("a parameter too few")
	}
}

func TestGateHoldsAndCounts(t *testing.T) {
	gates, err := NewGates(filepath.Join(t.TempDir(), "gates"), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := gates.Close(); err != nil {
			t.Error(err)
		}
	}()
	g := gates.At(2)
	before := Monotonic()
	if err := g.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	submitted, completed, last := g.Progress()
	if submitted != 1 || completed != 0 || last < before {
		t.Errorf("%d submitted, %d completed, the last at %v", submitted, completed, last)
	}
	g.complete()
	g.Hold(true)
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.submit(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held tenant submits: %v", err)
	}
	if submitted, completed, _ := g.Progress(); submitted != 1 || completed != 1 {
		t.Errorf("%d submitted, %d completed", submitted, completed)
	}
	g.Hold(false)
	if err := g.submit(t.Context()); err != nil {
		t.Error(err)
	}
	if s, _, _ := gates.At(1).Progress(); s != 0 {
		t.Error("another's place changed")
	}
}

// formed is a kernel of which the tuner says something.
type formed struct {
	function
	says *Form
}

func (f formed) form() *Form { return f.says }

// TestFormOfAJobIsWhatMattersMost has programs of several kernels.
func TestFormOfAJobIsWhatMattersMost(t *testing.T) {
	short, coarse, measuring, none := &Form{Why: "short"}, &Form{Form: 2, Why: "cheapest"}, &Form{Form: 1, Why: "measuring"}, &Form{}
	for name, c := range map[string]struct {
		says []*Form
		want *Form
	}{
		"one":                       {[]*Form{short}, short},
		"one with a form":           {[]*Form{short, coarse, short}, coarse},
		"one not done with":         {[]*Form{coarse, short, measuring}, measuring},
		"one of which nothing said": {[]*Form{coarse, none}, none},
		"no guest's":                {[]*Form{nil}, nil},
	} {
		var j job
		for _, f := range c.says {
			j.steps = append(j.steps, command{function: formed{says: f}})
		}
		if got := j.form(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
