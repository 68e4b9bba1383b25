package accounting_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// unrecorded returns a metered GPU whose records are all lost, with these contexts.
func unrecorded(contexts ...*accountingtest.RecordedContext) *metered {
	g := h100()
	for i, c := range contexts {
		c.PID, c.Group = 100+i, accounting.GroupID(1+i)
		g.Add(c)
	}
	g.AdvanceTo(33 * ms)
	l := newMetered(g, contexts...)
	l.lost = func(accounting.Switch) bool { return true }
	return l
}

// pass runs phases for a while, and returns how much of them was guessed.
func (l *metered) pass(t require, phases int) (guessed time.Duration) {
	for range phases {
		p := l.cut(t, 20*ms)
		guessed += p.Guessed
	}
	return guessed
}

// TestInferenceOfWaitedLaunches tests that, without records, contexts that wait for their launches
// are charged what they used, that the changes between them are counted, and that nothing is
// guessed. If they divided the time in which they had work, a context with long launches would be
// charged those of others.
func TestInferenceOfWaitedLaunches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		kernel []func() (time.Duration, time.Duration)
	}{
		{"ten of 10 µs after pauses of 1 ms beside one that has no pauses", []func() (time.Duration, time.Duration){
			fixed(300*us, 0), fixed(10*us, 990*us), fixed(10*us, 1010*us), fixed(10*us, ms), fixed(10*us, 1003*us), fixed(10*us, ms),
			fixed(10*us, 1007*us), fixed(10*us, 1001*us), fixed(10*us, ms), fixed(10*us, 997*us), fixed(10*us, ms),
		}},
		{"four of about 100 µs", []func() (time.Duration, time.Duration){
			accountingtest.Random(r, 100*us, 0.2), accountingtest.Random(r, 100*us, 0.2), accountingtest.Random(r, 100*us, 0.2), accountingtest.Random(r, 100*us, 0.2),
		}},
		{"one of 5 ms beside two of 200 µs", []func() (time.Duration, time.Duration){
			fixed(5*ms, 0), fixed(200*us, 3*ms), fixed(200*us, 3100*us),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var contexts []*accountingtest.RecordedContext
			for _, k := range c.kernel {
				contexts = append(contexts, &accountingtest.RecordedContext{Kernel: k})
			}
			l := unrecorded(contexts...)
			var switches uint64
			l.lost = func(sw accounting.Switch) bool {
				if sw.On {
					switches++
				}
				return true
			}
			before := l.runs
			guessed := l.pass(t, 100)
			if n := l.runs - before; n < switches*95/100 || n > switches*108/100 {
				t.Errorf("%d runs were counted in %d turns", n, switches)
			}
			const length = 2 * time.Second
			for i := range contexts {
				if off := l.off(i); off > length/400 || off < -length/400 {
					t.Errorf("context %d is charged %v of %v", i, l.charged[contexts[i].Group], l.truth(i))
				}
			}
			if guessed > length/200 {
				t.Errorf("%v of %v were guessed", guessed, length)
			}
			if n := l.sum.Switches; n < switches*95/100 || n > switches*105/100 {
				t.Errorf("%d changes were counted of %d", n, switches)
			}
			// A change takes 144 µs, and 165 µs and 47 µs later where a launch was preempted.
			if n := time.Duration(switches); l.sum.Switching < n*144*us*95/100 || l.sum.Switching > n*(165+47)*us {
				t.Errorf("%v of changes were counted for %d of them", l.sum.Switching, n)
			}
		})
	}
}

// TestInferenceGuesses tests that time is said to be guessed where reports don't tell whose it was,
// and that the guess is a fair one: contexts with equal slices are charged about the same.
func TestInferenceGuesses(t *testing.T) {
	var contexts []*accountingtest.RecordedContext
	for range 3 {
		contexts = append(contexts, &accountingtest.RecordedContext{Kernel: fixed(5*ms, 0), Depth: 4})
	}
	l := unrecorded(contexts...)
	guessed := l.pass(t, 100)
	if guessed < 400*ms {
		t.Errorf("only %v of 2s were guessed", guessed)
	}
	for i := range contexts {
		if off := l.off(i); off > 200*ms || off < -200*ms {
			t.Errorf("context %d is charged %v of %v", i, l.charged[contexts[i].Group], l.truth(i))
		}
	}
}

// TestInferenceOfSuspendedContexts tests that all time is guessed in which a context with a launch
// may be off the GPU: its launch is stamped as if it had been there.
func TestInferenceOfSuspendedContexts(t *testing.T) {
	a, b := &accountingtest.RecordedContext{Kernel: fixed(3*ms, 0)}, &accountingtest.RecordedContext{Kernel: fixed(200*us, ms)}
	l := unrecorded(a, b)
	l.pass(t, 10)
	l.gpu.Suspend(a, true)
	l.tell = func(w accounting.Work) (accounting.Work, bool) {
		w.Suspended = w.PID == a.PID
		return w, true
	}
	if guessed := l.pass(t, 10); guessed != 200*ms {
		t.Errorf("%v of 200ms were guessed", guessed)
	}
}

// TestInferenceIsRightUnlessItGuesses tests what pauses of the record rely on: if little of the
// time was guessed, no context's charge is off by more than a point of it.
func TestInferenceIsRightUnlessItGuesses(t *testing.T) {
	certain := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		var contexts []*accountingtest.RecordedContext
		for range rapid.IntRange(1, 8).Draw(t, "contexts") {
			// Shorter ones would be more than a context can report of.
			length := time.Duration(rapid.IntRange(60, 3000).Draw(t, "length")) * us
			load := rapid.SampledFrom([]float64{0.02, 0.1, 0.4, 1}).Draw(t, "load")
			contexts = append(contexts, &accountingtest.RecordedContext{
				Kernel: accountingtest.Random(r, length, load), Depth: rapid.IntRange(1, 4).Draw(t, "depth"),
			})
		}
		l := unrecorded(contexts...)
		l.pass(t, 10) // until it has learned
		before := make([]time.Duration, len(contexts))
		for i := range contexts {
			before[i] = l.off(i)
		}
		guessed := l.pass(t, 50)
		if guessed > 10*ms {
			return
		}
		certain++
		for i := range contexts {
			// Nothing is known yet of the work that runs at the beginning and at the end.
			if off := l.off(i) - before[i]; off > 10*ms+2*ms || off < -10*ms-2*ms {
				t.Fatalf("%v was guessed of 1s, and context %d is charged %v too much", guessed, i, off)
			}
		}
	})
	if certain == 0 {
		t.Error("everything was guessed: the test has no point")
	}
}

// TestInferenceAfterRecords tests that a meter that is left without records, and has them again,
// charges what was used all the while.
func TestInferenceAfterRecords(t *testing.T) {
	contexts := []*accountingtest.RecordedContext{{Kernel: fixed(100*us, 300*us)}, {Kernel: fixed(250*us, 400*us)}, {Kernel: fixed(ms, 0)}}
	l := unrecorded(contexts...)
	for i := range 20 {
		gone := i%2 == 1
		if gone {
			l.meter.Lost()
		}
		l.lost = func(accounting.Switch) bool { return gone }
		l.pass(t, 10)
	}
	for i := range contexts {
		if off := l.off(i); off > 20*ms || off < -20*ms {
			t.Errorf("context %d is charged %v of %v", i, l.charged[contexts[i].Group], l.truth(i))
		}
	}
}

// TestInferenceOfHostileWork tests that a meter without records keeps its sums whatever a context
// reports, and that its state does not grow. metered.cut checks the sums.
func TestInferenceOfHostileWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4))
		l := unrecorded(&accountingtest.RecordedContext{Kernel: fixed(200*us, 200*us)}, &accountingtest.RecordedContext{Kernel: fixed(300*us, 100*us)})
		l.tell = func(w accounting.Work) (accounting.Work, bool) {
			if w.PID != 100+hostileContext {
				return w, true
			}
			for range r.IntN(600) {
				start := l.gpu.Now() - 150*ms + time.Duration(r.Int64N(int64(200*ms)))
				w.Intervals = append(w.Intervals, accounting.Interval{Start: start, End: start + time.Duration(r.Int64N(int64(2*ms)))})
			}
			w.Since = time.Duration(r.Uint64())
			return w, true
		}
		l.pass(t, rapid.IntRange(1, 30).Draw(t, "phases"))
	})
}

// FuzzInference feeds a meter without records with any reports of three contexts.
func FuzzInference(f *testing.F) {
	f.Add([]byte{1, 10, 20, 2, 30, 5, 0, 3, 1, 1})
	f.Add([]byte{1, 0, 255, 1, 0, 255, 2, 0, 255, 0, 0, 0, 3, 128, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := accounting.NewRecordMeter(accounting.RecordMeterConfig{}, time.Second)
		now := time.Second
		var work [3]accounting.Work
		for i := range work {
			work[i] = accounting.Work{PID: 1 + i, Group: accounting.GroupID(i)}
		}
		var p accounting.Phase
		for ; len(b) >= 3; b = b[3:] {
			at, length := time.Duration(b[1])*100*us, time.Duration(b[2])*37*us
			if which := int(b[0] % 8); which < 3 {
				w := &work[which]
				w.Intervals = append(w.Intervals, accounting.Interval{Start: now + at - 10*ms, End: now + at - 10*ms + length})
				continue
			} else if which < 6 {
				work[which-3].Since = now + at
				continue
			}
			now += at + length
			for i := range work {
				m.Report(&work[i])
				work[i].Intervals = work[i].Intervals[:0]
			}
			m.Cut(now, &p)
			total := p.Idle + p.Switching
			for _, g := range p.Groups {
				if g.Busy < 0 || g.Switching < 0 {
					t.Fatalf("charged %+v", g)
				}
				total += g.Busy
			}
			if total != p.Length() || p.Idle < 0 || p.Switching < 0 || p.Guessed < 0 || p.Guessed > p.Length() {
				t.Fatalf("a phase of %v comes to %v: %+v", p.Length(), total, p)
			}
		}
	})
}
