package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu/corpus"
)

// interpreted is the corpus, once for all tests.
var interpreted = sync.OnceValues(func() ([]application, error) { return interpret(corpus.Trivial) })

func applications(t *testing.T) []application {
	t.Helper()
	apps, err := interpreted()
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

// Every kernel of the corpus has a length that a GPU's kernels have.
func TestInterpret(t *testing.T) {
	for _, a := range applications(t) {
		for _, d := range a.lengths {
			if d < 10*time.Microsecond || d > 100*time.Millisecond {
				t.Errorf("%s: a launch of %v", a.name, d)
			}
		}
	}
}

// Accounting and fair queueing reach what they are held to, and the printed rule does not.
func TestTargets(t *testing.T) {
	counts, seeds := []int{1, 2, 4, 12}, 1
	if testing.Short() {
		counts, seeds = []int{3}, 1
	}
	loads := scenarios(applications(t), counts, seeds)
	reached, err := targets(loads, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	found, err := shareAll(loads, 10*time.Second, cudaChannels)
	if err != nil {
		t.Fatal(err)
	}
	ours := len(reached)
	for i := range found {
		reached = append(reached, found[i].second)
	}
	for i, r := range reached {
		if printed := i >= ours && !schemes[i-ours].published; r.baseline && printed && r.passed() || !r.baseline && !r.passed() {
			t.Errorf("%s, limit %s: worst %.3f %s, over the limit in %d of %d runs (%s)", r.name, r.limit, r.worst, r.unit, r.over, r.runs, r.where)
		}
	}
}

// The shape of each figure is the paper's.
func TestFigures(t *testing.T) {
	apps := applications(t)
	few := apps[:3]
	t.Run("7", func(t *testing.T) {
		f, err := overhead(few, "7a", 10*time.Microsecond, 2*time.Second, 2, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Rows {
			for column, v := range r.Values {
				if off := v - 1; column < passive && (off < -0.01 || off > 0.01) || column >= passive && (off < 0.05 || off > 0.3) {
					t.Errorf("%s: %s %.3f; want 1 of those that read registers, and some more of NEON", r.Name, f.Columns[column+1], v)
				}
			}
		}
	})
	t.Run("8", func(t *testing.T) {
		f, err := byThrottles(apps, []int{1, 8}, 5*time.Second, 1)
		if err != nil {
			t.Fatal(err)
		}
		first, last := f.Rows[0].Values, f.Rows[len(f.Rows)-1].Values
		for column := range first {
			if column < passive && last[column] > 1.01 || column >= passive && last[column] <= first[column] {
				t.Errorf("%s: with 1 throttle %.3f, with 8 %.3f; want NEON's overhead to grow and the others' not", f.Columns[column+1], first[column], last[column])
			}
		}
	})
	t.Run("9", func(t *testing.T) {
		f, err := kernelLength(time.Second, 2)
		if err != nil {
			t.Fatal(err)
		}
		for column, want := range []float64{-6, -6, 0, 0, 0} {
			if got := f.Rows[0].Values[column]; math.Abs(got-want) > 1 {
				t.Errorf("kernels of 100 µs, %s: %.2f %% off, want %v", f.Columns[column+1], got, want)
			}
		}
	})
	t.Run("10", func(t *testing.T) {
		f, err := load(time.Second, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range f.Rows {
			for _, v := range r.Values {
				if want := 10 * float64(i+1); v < want-2.5 || v > want+2.5 {
					t.Errorf("load of %.0f %% measured as %.2f", want, v)
				}
			}
		}
	})
	t.Run("11", func(t *testing.T) {
		c, err := compete(few, schemes, 5*time.Second, cudaChannels, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.figure().Rows {
			fair, none, dfq := r.Values[0], r.Values[1], r.Values[len(r.Values)-1]
			if dfq < 0.85*fair || dfq > 1.1*fair || none > 0.8*fair {
				t.Errorf("%s: fair %.2f, without scheduling %.2f, dfq %.2f", r.Name, fair, none, dfq)
			}
		}
	})
}

// TestMoreWeightIsMoreTime: beside guests that pause, a program has the more of the GPU the more
// weight it has.
func TestMoreWeightIsMoreTime(t *testing.T) {
	few := applications(t)[:2]
	c, err := compete(few, weighings(), 5*time.Second, cudaChannels, 1)
	if err != nil {
		t.Fatal(err)
	}
	before := 0.0
	for i, s := range c.schemes {
		times, _ := c.each(1+i, func(r fairness) float64 { return r.gpu })
		if times <= before || times > 2*s.weight {
			t.Errorf("of weight %v: %.2f times as much as a throttle, after %.2f", s.weight, times, before)
		}
		before = times
	}
}

// TestLessWeightIsLessTime tests that throttles have more of the GPU than a program of three
// quarters of their weight, though they leave some of it unused: each is near its own part.
func TestLessWeightIsLessTime(t *testing.T) {
	c, err := compete(applications(t)[:8], weighings()[:1], 5*time.Second, cudaChannels, 1)
	if err != nil {
		t.Fatal(err)
	}
	if times, _ := c.each(1, func(r fairness) float64 { return r.gpu }); times > 0.91 {
		t.Errorf("of weight %v: %.3f times as much as a throttle", c.schemes[0].weight, times)
	}
}

// TestModestGuestsWasteLittle tests that a program that always has work and a throttle that leaves
// the GPU unused leave it idle for little longer than the throttle's pauses make it: neither is
// suspended for a lead that is but an error, or is soon gone.
func TestModestGuestsWasteLittle(t *testing.T) {
	var idle, length time.Duration
	for _, s := range scenarios(applications(t), []int{2}, 2) {
		if !strings.HasPrefix(s.name, "mixed") {
			continue
		}
		for _, e := range []experiment{
			{watch: accounting.Config{}},
			{watch: accounting.RecorderConfig{}.Watch(), ideal: true},
		} {
			e.tenants, e.policy, e.seed, e.length = s.tenants, "dfq", s.seed, 2*time.Second
			out, err := e.run()
			if err != nil {
				t.Fatal(err)
			}
			idle += out.idle
			length += out.length
		}
	}
	if part := idle.Seconds() / length.Seconds(); length == 0 || part > 0.16 {
		t.Errorf("the GPU is idle for %.1f %% of the time", 100*part)
	}
}

// TestPhasesGrowWithChannels: LoGA polls for 1 ms for each channel, and then does not for 5 ms for
// each, as published without any variation.
func TestPhasesGrowWithChannels(t *testing.T) {
	for each, want := range map[int]time.Duration{0: 5 * 12 * 6 * time.Millisecond, 1: 5 * 6 * time.Millisecond} {
		e := experiment{tenants: throttles(5, time.Millisecond, 0), policy: "loga", watch: publishedLoga, channels: each}
		r, err := e.begin(fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := &phaseEnds{run: r}
		sampler, err := accounting.NewSimulatedSampler(r.sim, w, r.watch)
		if err != nil {
			t.Fatal(err)
		}
		for len(w.ends) < 5 {
			if err := sampler.RunUntil(r.sim.Now() + time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		for i := 2; i < len(w.ends); i++ { // the first round is that of a GPU without load
			if took := w.ends[i] - w.ends[i-1]; took < want || took > want+want/100 {
				t.Errorf("%d channels each (0: CUDA's): a round took %v, want %v", each, took, want)
			}
		}
	}
}

// phaseEnds notes when polling phases end.
type phaseEnds struct {
	*run
	ends []time.Duration
}

func (w *phaseEnds) PollEnded(p *accounting.Phase) accounting.Plan {
	w.ends = append(w.ends, p.End)
	return w.run.PollEnded(p)
}

// TestWatchingCanCost: where reading a register takes long, figure 7 shows it.
func TestWatchingCanCost(t *testing.T) {
	a := applications(t)[0]
	for _, test := range []struct {
		read        time.Duration
		least, most float64
	}{{0, -0.007, 0.007}, {200 * time.Microsecond, 0.007, 0.5}} {
		e := experiment{tenants: beside(a, throttles(10, 10*time.Microsecond, time.Millisecond)), policy: "none", length: 5 * time.Second, read: test.read, watch: full(ours)}
		e.watch.Tick = 2 * test.read
		alone, err := e.unwatched()
		if err != nil {
			t.Fatal(err)
		}
		watched, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		if over := turnaround(watched, alone) - 1; over < test.least || over > test.most {
			t.Errorf("reads of %v (0: as they are): the turnaround is %.4f longer, want %v to %v", test.read, over, test.least, test.most)
		}
	}
}

// A run is the same each time: loads, jitter and order of computing.
func TestDeterministic(t *testing.T) {
	s := scenarios(applications(t), []int{4}, 1)
	var texts []string
	for range 2 {
		reached, err := targets(s, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		found, err := shareAll(s, 2*time.Second, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			reached = append(reached, found[i].second)
		}
		texts = append(texts, targetText(reached))
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
}

// The report names each figure, and the drawings are well-formed.
func TestWrite(t *testing.T) {
	f, err := load(100*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	bars := f
	bars.Lines, bars.Number = false, "11"
	dir := t.TempDir()
	r := report{figures: []figure{f, bars}, reached: []target{{name: "a target", runs: 1}}, contests: []group{{channels: 1, free: sharing{second: target{mean: 2}}}}}
	for _, name := range []string{"a contest", offContest, idleLoads} {
		r.contests[0].contests = append(r.contests[0].contests, contest{name: name, values: make([]float64, len(schemes)), spread: make([]float64, len(schemes))})
	}
	for i := range schemes {
		r.contests[0].contests[2].values[i] = 3
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "loga.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Figure 10", "## Figure 11", "a target", "a contest", "dfq 1.500\n", "Not ahead of LoGA publ. in", "behind NEON publ., LoGA-CL publ., LoGA publ.", "loga-figure10.svg", "paper:"} {
		if !strings.Contains(string(written), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, name := range []string{"loga-figure10.svg", "loga-figure11.svg"} {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for d := xml.NewDecoder(file); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}
