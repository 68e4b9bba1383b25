package neon

import (
	"math"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// testGate is a gate to a simulated GPU.
type testGate struct {
	gpu    *accountingtest.GPU
	groups []*accountingtest.Group
	admits [][]Owner
	busy   [][]bool // of each admission: who had a command on the GPU just before
}

func (s *testGate) Owners() (owners []Owner) {
	for i := range s.groups {
		owners = append(owners, Owner(i))
	}
	return owners
}

func (s *testGate) Admit(owners []Owner) {
	s.admits = append(s.admits, append([]Owner(nil), owners...))
	var busy []bool
	for _, g := range s.groups {
		busy = append(busy, g.InFlight())
	}
	s.busy = append(s.busy, busy)
	for i, g := range s.groups {
		held := true
		for _, o := range owners {
			held = held && int(o) != i
		}
		s.gpu.Hold(g, held)
	}
}

func (s *testGate) Drained() bool {
	for _, g := range s.groups {
		if g.InFlight() {
			return false
		}
	}
	return true
}

func (s *testGate) Progress(o Owner) Progress {
	sent, newest := s.groups[o].Sent()
	return Progress{Submitted: sent, Completed: s.groups[o].Done(), LastSubmit: newest}
}

func newGate(groups ...*accountingtest.Group) *testGate {
	s := &testGate{gpu: &accountingtest.GPU{}, groups: groups}
	for _, g := range groups {
		s.gpu.Add(g)
	}
	return s
}

// run drives NEON until time end, and calls each with every round.
func (s *testGate) run(n *Sampling, end time.Duration, each func(*Round)) {
	for s.gpu.Now() < end {
		next, round := n.Step(s.gpu.Now())
		if round != nil && each != nil {
			each(round)
		}
		s.gpu.AdvanceTo(next)
	}
}

// Of saturating guests NEON learns the command lengths well enough to share out the free run.
func TestSamplingSharesByMeanLength(t *testing.T) {
	s := newGate(
		accountingtest.Throttle(1, 2*time.Millisecond, 1, 1),
		accountingtest.Throttle(2, time.Millisecond/2, 1, 1),
	)
	n := NewSampling(Config{}, s, nil)
	charged := make([]time.Duration, 2)
	var rounds int
	s.run(n, 5*time.Second, func(r *Round) {
		rounds++ // the first has no free run
		for i := range r.Samples {
			charged[i] += r.Samples[i].Charged
		}
		if r.Alone < 10*time.Millisecond || r.Alone > 20*time.Millisecond || rounds > 1 && r.FreeRun != 50*time.Millisecond {
			t.Errorf("alone %v in all, free run %v: want two times 5 ms and draining, and 50 ms", r.Alone, r.FreeRun)
		}
	})
	if rounds < 50 {
		t.Errorf("%d rounds in 5 s", rounds)
	}
	for i, g := range s.groups {
		if off := math.Abs(charged[i].Seconds() - s.gpu.Busy(g).Seconds()); off > 0.1*s.gpu.Busy(g).Seconds() {
			t.Errorf("guest %d: charged %v of %v", i, charged[i], s.gpu.Busy(g))
		}
	}
}

// It idles the GPU as each guest that doesn't saturate it runs alone, where watching the registers
// costs nothing: the paper's point.
func TestSamplingIdlesTheGPU(t *testing.T) {
	load := func() []*accountingtest.Group {
		g := []*accountingtest.Group{accountingtest.Throttle(1, time.Millisecond, 1, 1)}
		for i := range 10 {
			g = append(g, accountingtest.Throttle(accounting.GroupID(i+2), 10*time.Microsecond, 0.0099, uint64(i)))
		}
		return g
	}
	with := newGate(load()...)
	with.run(NewSampling(Config{}, with, nil), 5*time.Second, nil)
	without := newGate(load()...)
	without.gpu.AdvanceTo(with.gpu.Now())
	slower := without.gpu.Busy(without.groups[0]).Seconds()/with.gpu.Busy(with.groups[0]).Seconds() - 1
	if slower < 0.05 {
		t.Errorf("the saturating guest is slowed down by %.1f %%, want several per cent", 100*slower)
	}
}

// While a guest is sampled it is alone, and only those allowed run freely.
func TestSamplingGate(t *testing.T) {
	s := newGate(accountingtest.Throttle(1, time.Millisecond, 1, 1), accountingtest.Throttle(2, time.Millisecond, 1, 1))
	n := NewSampling(Config{}, s, func(o []Sample) []Owner {
		return []Owner{o[1].Owner}
	})
	s.run(n, time.Second, func(r *Round) {
		if got := r.Samples[0]; got.Charged != got.Busy {
			t.Errorf("a guest that was not let run is charged %v, and used %v alone", got.Charged, got.Busy)
		}
	})
	for _, admitted := range s.admits {
		if len(admitted) > 1 {
			t.Errorf("admitted %v while one is allowed at most", admitted)
		}
	}
	if len(s.admits) < 20 {
		t.Errorf("%d changes of the gate in a second", len(s.admits))
	}
}

// Nobody is let run alone before what the others have on the GPU has ended: neither the first,
// after the free run, nor those after it.
func TestSamplingDrains(t *testing.T) {
	s := newGate(
		accountingtest.Throttle(1, 7*time.Millisecond, 1, 1),
		accountingtest.Throttle(2, 4*time.Millisecond, 1, 2),
		accountingtest.Throttle(3, 11*time.Millisecond, 1, 3),
	)
	n := NewSampling(Config{}, s, nil)
	alone, drains := 0, 0
	s.run(n, 2*time.Second, func(r *Round) {
		if r.Drain > 0 {
			drains++
		}
		if r.Alone < 15*time.Millisecond {
			t.Errorf("three were alone for %v in all, want 5 ms each at least", r.Alone)
		}
	})
	for i, admitted := range s.admits {
		if len(admitted) != 1 {
			continue
		}
		alone++
		for j, busy := range s.busy[i] {
			if busy && Owner(j) != admitted[0] {
				t.Errorf("guest %d was let run alone while guest %d had a command on the GPU", admitted[0], j)
			}
		}
	}
	if alone < 30 || drains < 10 {
		t.Errorf("let %d run alone after %d drains in 2 s", alone, drains)
	}
}

// A command that never ends doesn't hold the draining phase for ever.
func TestSamplingDrainIsBounded(t *testing.T) {
	s := newGate(&accountingtest.Group{ID: 1, Kernel: func() (time.Duration, time.Duration) { return time.Hour, 0 }})
	n := NewSampling(Config{}, s, nil)
	var rounds int
	s.run(n, time.Second, func(r *Round) {
		rounds++
		if r.Drain > 110*time.Millisecond {
			t.Errorf("drained for %v", r.Drain)
		}
	})
	if rounds == 0 {
		t.Error("no round ended in a second")
	}
}
