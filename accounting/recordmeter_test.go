package accounting_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// h100 returns a GPU that switches contexts as measured on an H100.
func h100() *accountingtest.Recorded {
	g := &accountingtest.Recorded{Save: 64 * us, Preempted: 85 * us, Load: 80 * us, ResumeDelay: 47 * us}
	g.AdvanceTo(ms) // nothing has been there since 0, which would say nothing
	return g
}

// metered runs a meter over a simulated GPU and adds up its results.
type metered struct {
	gpu      *accountingtest.Recorded
	meter    *accounting.RecordMeter
	contexts []*accountingtest.RecordedContext
	start    []time.Duration // true use at the beginning
	charged  map[accounting.GroupID]time.Duration
	runs     uint64
	sum      accounting.Phase
	tell     func(accounting.Work) (accounting.Work, bool) // alters or drops a report of work; nil: keeps all
	see      func(accounting.Switch)
	lose     func() bool // whether records are lost
	// lost reports whether the hardware silently omits a record.
	lost func(accounting.Switch) bool
	// attribute, if set, attributes processes that make no reports.
	attribute func(now time.Duration, pid int) (accounting.GroupID, bool)
}

func newMetered(g *accountingtest.Recorded, contexts ...*accountingtest.RecordedContext) *metered {
	l := &metered{gpu: g, contexts: contexts, meter: accounting.NewRecordMeter(accounting.RecordMeterConfig{}, g.Now()), charged: make(map[accounting.GroupID]time.Duration)}
	g.Records()
	for _, c := range contexts {
		c.Work()
		l.start = append(l.start, c.Busy())
	}
	return l
}

// cut runs one phase.
func (l *metered) cut(t require, d time.Duration) accounting.Phase {
	t.Helper()
	before := l.gpu.Now()
	l.gpu.AdvanceTo(before + d)
	for _, r := range l.gpu.Records() {
		if l.lose != nil && l.lose() {
			l.meter.Lost()
			continue
		}
		if l.lost != nil && l.lost(r) {
			continue
		}
		if l.see != nil {
			l.see(r)
		}
		l.meter.Record(r)
	}
	for _, c := range l.contexts {
		w := c.Work()
		if l.tell != nil {
			w, _ = l.tell(w)
		}
		l.meter.Report(&w)
	}
	if l.attribute != nil {
		l.meter.Attribute(l.gpu.Now(), l.attribute)
	}
	var p accounting.Phase
	l.meter.Cut(l.gpu.Now(), &p)
	if p.Start != before || p.End != l.gpu.Now() {
		t.Fatalf("phase from %v to %v, want %v to %v", p.Start, p.End, before, l.gpu.Now())
	}
	total := p.Idle + p.Switching
	for _, g := range p.Groups {
		if g.Busy < 0 || g.Switching < 0 {
			t.Fatalf("group %d is charged %v and %v of switching", g.Group, g.Busy, g.Switching)
		}
		total += g.Busy
		l.charged[g.Group] += g.Busy
		l.runs += g.Runs
	}
	if total != p.Length() || p.Idle < 0 || p.Switching < 0 {
		t.Fatalf("a phase of %v comes to %v: %+v", p.Length(), total, p)
	}
	l.sum.Idle += p.Idle
	l.sum.Switching += p.Switching
	l.sum.Switches += p.Switches
	return p
}

// truth returns what context i used since the beginning.
func (l *metered) truth(i int) time.Duration { return l.contexts[i].Busy() - l.start[i] }

// off returns how much more context i is charged than it used.
func (l *metered) off(i int) time.Duration { return l.charged[l.contexts[i].Group] - l.truth(i) }

// require is the common interface of testing.TB and rapid.T.
type require interface {
	Helper()
	Fatalf(string, ...any)
}

func fixed(length, think time.Duration) func() (time.Duration, time.Duration) {
	return func() (time.Duration, time.Duration) { return length, think }
}

// TestRecordMeterMeasured replays the loads on an H100 for which both the intervals between
// switches and the true use are known. The intervals alone are between 6 % too long and useless.
// Clipped to the reported work, and without the context saves, they are right.
func TestRecordMeterMeasured(t *testing.T) {
	type load struct {
		length, think time.Duration
		fetched       int
		slice         time.Duration
		spans         float64 // sum of the intervals divided by the true use
	}
	for _, c := range []struct {
		name  string
		loads []load
		off   float64 // relative to the true use
	}{
		{"500 µs kernels back to back", []load{
			{501500, 0, 2, 2048 * us, 465.1 / 436.3}, {501500, 0, 2, 2048 * us, 465.1 / 436.3},
		}, 0.002},
		{"back to back beside one in 4.2 ms", []load{
			{501500, 0, 2, 2048 * us, 828.8 / 810.3}, {501500, 3500 * us, 1, 2048 * us, 131.1 / 116.4},
		}, 0.005},
		{"slices of 1 and 4 ms, long kernels", []load{
			{20 * ms, 0, 0, 1024 * us, 20.70 / 19.2}, {20 * ms, 0, 0, 4096 * us, 76.22 / 74.7},
		}, 0.005},
		{"0.5 ms each 10.5 ms, 1 ms each 18 ms", []load{
			{500 * us, 10 * ms, 1, 2048 * us, 685. / 47}, {ms, 17 * ms, 1, 2048 * us, 305. / 54},
		}, 0.005},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := h100()
			var contexts []*accountingtest.RecordedContext
			for i, l := range c.loads {
				ctx := &accountingtest.RecordedContext{
					PID: 100 + i, Group: accounting.GroupID(i + 1), Slice: l.slice, Depth: 2, Fetched: l.fetched, Kernel: fixed(l.length, l.think),
				}
				if l.think > 0 {
					ctx.Depth = 1
				}
				g.Add(ctx)
				contexts = append(contexts, ctx)
			}
			g.AdvanceTo(50 * ms)
			l := newMetered(g, contexts...)
			spans, came := make(map[int]time.Duration), g.Now()
			l.see = func(sw accounting.Switch) {
				if sw.On {
					came = sw.Clock
				} else {
					spans[sw.PID] += sw.Clock - came
				}
			}
			for range 100 {
				l.cut(t, 10*ms)
			}
			for i, ctx := range contexts {
				true := float64(l.truth(i))
				if off := float64(l.off(i)) / true; off > c.off || off < -c.off {
					t.Errorf("context %d: charged %v of true %v, %+.2f %%", i, l.charged[ctx.Group], l.truth(i), 100*off)
				}
				// The simulation matches that GPU except in when an idle context came back.
				if raw := float64(spans[ctx.PID]) / true; c.loads[i].spans < 2 && (raw < c.loads[i].spans-0.015 || raw > c.loads[i].spans+0.015) {
					t.Errorf("context %d: spans are %.3f of what is true, measured %.3f", i, raw, c.loads[i].spans)
				}
			}
		})
	}
}

// TestRecordMeterGrid tests that the error of a guest's load is below a point for loads of 10 to
// 100 %, kernels of 50 µs to 5 ms, and 1 to 8 guests.
func TestRecordMeterGrid(t *testing.T) {
	for _, p := range []struct {
		guests int
		length time.Duration
		load   float64
	}{
		{1, 50 * us, 0.1}, {1, 50 * us, 1}, {1, 500 * us, 0.4}, {1, 5 * ms, 0.7},
		{2, 50 * us, 0.2}, {2, 50 * us, 1}, {2, 500 * us, 0.5}, {2, 5 * ms, 1},
		{4, 50 * us, 0.1}, {4, 200 * us, 0.3}, {4, 1 * ms, 0.7}, {4, 5 * ms, 0.4},
		{8, 50 * us, 0.1}, {8, 200 * us, 1}, {8, 1 * ms, 0.2}, {8, 5 * ms, 1},
	} {
		t.Run(fmt.Sprintf("%d guests, %v, %.0f %%", p.guests, p.length, 100*p.load), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			g := h100()
			g.Save = 61 * us // it varies by some microseconds
			var contexts []*accountingtest.RecordedContext
			for i := range p.guests {
				c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(i), Kernel: accountingtest.Random(r, p.length, p.load), Depth: 1 + i%2}
				g.Add(c)
				contexts = append(contexts, c)
			}
			g.AdvanceTo(33 * ms)
			l := newMetered(g, contexts...)
			const cuts = 200
			for range cuts {
				l.cut(t, 10*ms)
			}
			for i := range contexts {
				if off := float64(l.off(i)) / float64(cuts*10*ms); off > 0.002 || off < -0.002 {
					t.Errorf("guest %d: %+.2f points beside a true %.1f %%", i, 100*off, 100*float64(l.truth(i))/float64(cuts*10*ms))
				}
			}
		})
	}
}

// TestRecordMeterIdleStays tests that a context that stays on the engine without work, since no
// other needs it, is not charged, and that a lone context without records is charged correctly.
func TestRecordMeterIdleStays(t *testing.T) {
	g := h100()
	c := &accountingtest.RecordedContext{PID: 7, Group: 3, Kernel: fixed(ms, 9*ms)}
	g.Add(c)
	g.AdvanceTo(15 * ms)
	l := newMetered(g, c) // the context is there before the meter
	for range 100 {
		l.cut(t, 10*ms)
	}
	if l.truth(0) < 95*ms || l.off(0) > 100*us || l.off(0) < -100*us {
		t.Errorf("charged %v of %v", l.charged[3], l.truth(0))
	}
	if l.sum.Switches != 0 || l.sum.Switching != 0 {
		t.Errorf("%d switches of %v, and there was one context", l.sum.Switches, l.sum.Switching)
	}
}

// TestRecordMeterSuspended tests that a context that was suspended in the middle of a kernel is
// charged for the time that it ran, and that another context gets the rest.
func TestRecordMeterSuspended(t *testing.T) {
	g := h100()
	c := &accountingtest.RecordedContext{PID: 7, Group: 3, Kernel: fixed(5*time.Second, 0)}
	g.Add(c)
	l := newMetered(g, c)
	for i := range 40 {
		g.Suspend(c, i%4 > 1)
		l.cut(t, 10*ms)
	}
	if want := 200 * ms; l.truth(0) > want || l.truth(0) < want-5*ms {
		t.Fatalf("it ran for %v, want about %v", l.truth(0), want)
	}
	if off := l.off(0); off > ms || off < -ms {
		t.Errorf("charged %v of %v", l.charged[3], l.truth(0))
	}
}

// TestRecordMeterOfNobody tests that the time of contexts that belong to no group, such as the
// driver's own, is charged to none, whatever the groups' IDs.
func TestRecordMeterOfNobody(t *testing.T) {
	m := accounting.NewRecordMeter(accounting.RecordMeterConfig{}, ms)
	m.Record(accounting.Switch{Clock: 2 * ms, PID: 7, On: true})
	m.Record(accounting.Switch{Clock: 4 * ms, PID: 7})
	m.Record(accounting.Switch{Clock: 5 * ms, PID: accounting.NoProcess, On: true})
	m.Report(&accounting.Work{PID: 7, Group: 0, Since: ms})
	var p accounting.Phase
	m.Cut(10*ms, &p)
	if got := p.Of(0).Busy; got != 2*ms-85*us || p.Running {
		t.Errorf("charged %v, running %v", got, p.Running)
	}
}

// TestRecordMeterTellsRunning tests which context is reported on the engine at the end of a phase.
func TestRecordMeterTellsRunning(t *testing.T) {
	g := h100()
	c := &accountingtest.RecordedContext{PID: 7, Group: 3, Kernel: fixed(15*ms, 21*ms)}
	g.Add(c)
	l := newMetered(g, c)
	for i, want := range []bool{false, false, true, false, false, true} {
		if p := l.cut(t, 10*ms); p.Running != want || want && p.Last != 3 {
			t.Errorf("phase %d: group %d runs: %v, want %v", i, p.Last, p.Running, want)
		}
	}
}

// TestRecordMeterProperties tests random loads with late reports, lost records, and contexts that
// are created, destroyed and suspended. Charges never exceed the elapsed time, never decrease, and
// in the end equal the use.
func TestRecordMeterProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		g := h100()
		n := rapid.IntRange(1, 6).Draw(t, "contexts")
		slice := time.Duration(rapid.IntRange(500, 8000).Draw(t, "slice")) * us
		var contexts []*accountingtest.RecordedContext
		for i := range n {
			length := time.Duration(rapid.IntRange(20, 20000).Draw(t, "length")) * us
			load := rapid.Float64Range(0.05, 1).Draw(t, "load")
			c := &accountingtest.RecordedContext{
				PID: 100 + i, Group: accounting.GroupID(i), Slice: slice,
				Kernel: accountingtest.Random(r, length, load), Depth: rapid.IntRange(1, 3).Draw(t, "depth"),
			}
			g.Add(c)
			contexts = append(contexts, c)
		}
		g.AdvanceTo(time.Duration(rapid.IntRange(0, 100000).Draw(t, "before")) * us)
		l := newMetered(g, contexts...)
		// Reports arrive some cuts late but complete, so that the end of a run is reported after
		// the context seemed to run on.
		late := rapid.IntRange(0, 3).Draw(t, "late")
		reports := make([][]accounting.Work, n)
		l.tell = func(w accounting.Work) (accounting.Work, bool) {
			q := append(reports[w.PID-100], w)
			reports[w.PID-100] = q
			if len(q) <= late {
				return accounting.Work{PID: w.PID, Group: w.Group}, false
			}
			reports[w.PID-100] = q[1:]
			return q[0], true
		}
		// A context that is suspended before any record shows where it is looks like one that is
		// alone on the engine. So does one whose record of leaving the engine is lost, so none is
		// lost while a context is suspended.
		recorded, suspended := make(map[int]bool), false
		lossy := rapid.Bool().Draw(t, "lossy")
		lost := 0
		l.lose = func() bool {
			if lossy && !suspended && r.IntN(500) == 0 {
				lost++
				clear(recorded)
				return true
			}
			return false
		}
		l.see = func(sw accounting.Switch) { recorded[sw.PID] = true }
		var longest time.Duration
		for i := range 120 {
			if c := contexts[r.IntN(n)]; i%20 == 10 && recorded[c.PID] && rapid.Bool().Draw(t, "suspend") {
				g.Suspend(c, true)
				suspended = true
			} else if i%20 == 18 {
				suspended = false
				for _, c := range contexts {
					g.Suspend(c, false)
				}
			}
			d := time.Duration(rapid.IntRange(2000, 15000).Draw(t, "interval")) * us
			longest = max(longest, d)
			l.cut(t, d)
		}
		for i := range contexts {
			// Reports in transit and the rest of a long kernel on the GPU and, if records were
			// lost, turns that are unknown.
			slack := 2*ms + time.Duration(late+1)*longest + time.Duration(lost)*(slice+20*ms)
			if off := l.off(i); off > slack || off < -slack {
				t.Fatalf("context %d: charged %v of %v, off by more than %v", i, l.charged[contexts[i].Group], l.truth(i), slack)
			}
		}
	})
}
