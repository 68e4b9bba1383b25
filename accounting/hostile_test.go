package accounting_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// hostileContext is the index of the context that makes false reports, beside an honest one.
const hostileContext = 1

// beside returns a metered GPU with an honest context and one whose reports lie alters.
func beside(t require, seed uint64, lie func(w accounting.Work) accounting.Work) *metered {
	r := rand.New(rand.NewPCG(seed, 1))
	g := h100()
	var contexts []*accountingtest.RecordedContext
	for i := range 2 {
		c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(i), Slice: 2 * ms, Kernel: accountingtest.Random(r, 500*us, 0.4)}
		g.Add(c)
		contexts = append(contexts, c)
	}
	g.AdvanceTo(33 * ms)
	l := newMetered(g, contexts...)
	l.cut(t, 40*ms) // until the first record the context on the engine is unknown
	l.tell = func(w accounting.Work) (accounting.Work, bool) {
		if w.PID == 100+hostileContext {
			w = lie(w)
		}
		return w, true
	}
	return l
}

// honest checks that the honest context is charged as if there had been no false reports, once it
// has made up for the delays that these caused.
func (l *metered) honest(t require) {
	t.Helper()
	l.tell = nil
	for range 10 {
		l.cut(t, 20*ms)
	}
	if off := l.off(1 - hostileContext); off > ms || off < -ms {
		t.Fatalf("the other context is charged %v of %v", l.charged[l.contexts[1-hostileContext].Group], l.truth(1-hostileContext))
	}
}

// TestRecordMeterHostileInstants tests that no start of work that a context claims affects what
// others are charged.
func TestRecordMeterHostileInstants(t *testing.T) {
	for _, since := range []time.Duration{
		math.MinInt64, math.MinInt64 + 20*ms, math.MinInt64 + 40*ms - 1, math.MinInt64 + 40*ms, math.MinInt64 + 200*ms,
		-time.Second, -1, 1, math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 200*ms, 1 << 62, -1 << 62,
	} {
		lied := false
		l := beside(t, 1, func(w accounting.Work) accounting.Work {
			if !lied {
				w.Since, lied = since, true
			}
			return w
		})
		for range 50 {
			l.cut(t, 20*ms)
		}
		l.honest(t)
	}
}

// TestRecordMeterHostileWork tests that, whatever work a context claims, the other one is charged
// correctly, both are charged no more than the elapsed time, and the meter's state does not grow.
func TestRecordMeterHostileWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 2))
		var l *metered
		// Some times are useless, and some nearly right.
		instant := func() time.Duration {
			now := l.gpu.Now()
			switch r.IntN(5) {
			case 0:
				return time.Duration(r.Uint64())
			case 1:
				return []time.Duration{math.MinInt64, math.MaxInt64, 0, -1, math.MinInt64 + 40*ms, math.MaxInt64 - 40*ms}[r.IntN(6)]
			case 2:
				return now + time.Duration(r.Int64N(int64(time.Minute)))
			default:
				return now - 150*ms + time.Duration(r.Int64N(int64(200*ms)))
			}
		}
		lies := rapid.SampledFrom([]int{0, 1, 20, 512}).Draw(t, "spans")
		l = beside(t, seed, func(w accounting.Work) accounting.Work {
			w.Since = instant()
			for range r.IntN(lies + 1) {
				start := instant()
				end := instant()
				if r.IntN(2) == 0 {
					end = start + time.Duration(r.IntN(1000))
				}
				w.Intervals = append(w.Intervals, accounting.Interval{Start: start, End: end})
			}
			return w
		})
		for range rapid.IntRange(1, 60).Draw(t, "cuts") {
			l.cut(t, time.Duration(rapid.IntRange(1000, 40000).Draw(t, "interval"))*us)
		}
		l.honest(t)
	})
}

// TestRecordMeterIsBounded tests that the meter's state stays bounded if reports contain intervals
// in the future, or more of them than a GPU can have had.
func TestRecordMeterIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		step time.Duration // from one interval to the next
		from time.Duration // start of the first one, relative to the previous cut
	}{
		{"in the far future", 20 * us, time.Hour},
		{"soon", 20 * us, ms},
		{"in the past, backwards", -20, 0},
		{"dense", 20, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l *metered
			n := 0
			l = beside(t, 3, func(w accounting.Work) accounting.Work {
				w.Since = 1
				for i := range 512 {
					start := l.gpu.Now() + c.from + time.Duration(i+1)*c.step
					if c.from > ms {
						start += time.Duration(n) * ms // never the same again
					}
					w.Intervals = append(w.Intervals, accounting.Interval{Start: start, End: start + 10})
				}
				n++
				return w
			})
			for range 50 {
				l.cut(t, 20*ms)
			}
			before := l.meter.Kept()
			for range 500 {
				l.cut(t, 20*ms)
			}
			if kept := l.meter.Kept(); kept > before+1000 || kept > 10000 {
				t.Errorf("%d spans are kept after 11 s, %d after one", kept, before)
			}
			l.honest(t)
		})
	}
}

// TestRecordMeterUnclaimed tests that a process without reports is charged for all of its time on
// the engine to the group that it is attributed to, from then on, and to none if it belongs to
// none.
func TestRecordMeterUnclaimed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	g := h100()
	var contexts []*accountingtest.RecordedContext
	for i := range 3 {
		c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(i), Depth: 2, Kernel: accountingtest.Random(r, ms, 0.6)}
		g.Add(c)
		contexts = append(contexts, c)
	}
	g.AdvanceTo(33 * ms)
	l := newMetered(g, contexts...)
	l.contexts = contexts[:1] // the others make no reports
	const owner accounting.GroupID = 9
	belongs := false
	l.attribute = func(_ time.Duration, pid int) (accounting.GroupID, bool) {
		if pid == 100 {
			t.Error("a process that was told of is asked about")
		}
		return owner, belongs && pid == 101
	}
	for range 50 {
		l.cut(t, 20*ms)
	}
	if got := l.charged[owner]; got != 0 {
		t.Errorf("charged %v before anybody knew whose it is", got)
	}
	belongs = true
	before := contexts[1].Busy()
	for range 50 {
		l.cut(t, 20*ms)
	}
	if got, busy := l.charged[owner], contexts[1].Busy()-before; got < busy-2*ms || got > busy*11/10 {
		t.Errorf("charged %v of %v", got, busy)
	}
	if off := l.off(0); off > ms || off < -ms {
		t.Errorf("the context that was told of is charged %v of %v", l.charged[0], l.truth(0))
	}
	if len(l.charged) != 2 {
		t.Errorf("charged: %v", l.charged)
	}
}
