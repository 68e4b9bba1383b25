package ipc

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWordsAreBounded: impossible words that a guest's process wrote are read as possible values.
func TestWordsAreBounded(t *testing.T) {
	p, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := p.Context(0)
	l := (*contextLayout)(c)
	for _, group := range []uint32{0, 1<<16 + 1, math.MaxUint32} {
		l.group.Store(group)
		if id, ok := c.Group(); ok {
			t.Errorf("group word %#x is group %d", group, id)
		}
	}
	for want, group := range map[uint16]uint32{0: 1, math.MaxUint16: 1 << 16} {
		l.group.Store(group)
		if id, ok := c.Group(); !ok || id != want {
			t.Errorf("group word %#x is group %d, %v", group, id, ok)
		}
	}
	l.pid.Store(-7)
	if pid := c.PID(); pid != 0 {
		t.Errorf("process %d", pid)
	}
	l.state.Store(77)
	if s := c.State(); s != ContextFaulted {
		t.Errorf("state %v", s)
	}
	l.fetched.Store(3)
	for finished, want := range map[uint64]uint64{0: 3, 3: 0, 4: maxOutstanding, math.MaxUint64: 4, 1 << 63: maxOutstanding} {
		l.finished.Store(finished)
		if got := c.Outstanding(); got != want {
			t.Errorf("%d outstanding with %d finished, want %d", got, finished, want)
		}
	}
	for worked, want := range map[int64]time.Duration{0: 0, 5: 5, 50: 10, math.MaxInt64: 10, math.MinInt64: 0, ^4: 6, ^20: 0} {
		l.worked.Store(worked)
		if got := c.Worked(10); got != want {
			t.Errorf("worked %v by the word %d, want %v", got, worked, want)
		}
	}
	for m, want := range map[Mode]Mode{ModeFree: ModeFree, ModeAhead: ModeAhead, ModeAhead + 1: ModeByKernel, math.MaxUint32: ModeByKernel} {
		p.launches.mode.Store(uint32(m))
		if got := p.Mode(); got != want {
			t.Errorf("mode %d for the word %d, want %d", got, m, want)
		}
	}
	p.l.doorbells.Store(math.MaxUint64)
	if n := p.Doorbells(); n != maxCount {
		t.Errorf("%d doorbells", n)
	}
	for _, w := range []interface{ Store(uint64) }{&l.kernels, &l.errors, &l.copied, &l.commands, &l.wakeups, &l.evictions, &l.relaunches, &l.unresponsive, &l.ignored} {
		w.Store(math.MaxUint64)
	}
	for _, word := range []int64{math.MinInt64, math.MaxInt64} {
		for _, w := range []interface{ Store(int64) }{&l.gpuTime, &l.lateTime, &l.evictionTime} {
			w.Store(word)
		}
		most := Counters{
			Kernels: maxCount, Errors: maxCount, ErrorsBy: [ErrorReasons]uint64{ErrorOther: maxCount}, CopiedBytes: maxBytes, Commands: maxCount, Wakeups: maxCount,
			Evictions: maxCount, Relaunches: maxCount, Unresponsive: maxCount, IgnoredPriorities: maxCount,
		}
		if word > 0 {
			most.GPUTime, most.LateTime, most.EvictionTime = maxTime, maxTime, maxTime
		}
		if diff := cmp.Diff(most, c.Counters()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	var sum Counters
	for range MaxContexts {
		before := sum
		sum = sum.Add(c.Counters())
		if sum.Max(before) != sum {
			t.Fatalf("the sum went over: %+v after %+v", sum, before)
		}
	}
}
