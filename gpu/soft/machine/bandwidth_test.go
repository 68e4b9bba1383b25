package machine

import (
	"testing"
	"time"
)

// ends runs launches that are submitted at once, in groups of their own, and returns when each ends.
func ends(t *testing.T, m *Machine, work ...Work) []time.Duration {
	t.Helper()
	at := make([]time.Duration, len(work))
	for i, w := range work {
		g, err := m.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Submit(&Launch{Work: w, Tag: i}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		evs := m.Step(time.Hour)
		if evs == nil {
			return at
		}
		for _, e := range evs {
			if e.Kind == Finished {
				at[e.Launch.Tag.(int)] = m.Now()
			}
		}
	}
}

// TestBandwidthIsShared: launches that fit side by side wait longer for memory if they want more of
// it than there is. Together they then move as much as it can.
func TestBandwidthIsShared(t *testing.T) {
	cfg := Config{Mode: CoRun, SMs: 4, SM: Resources{Blocks: 8, Threads: 1024, Registers: 65536, Shared: 1 << 16}, Overhead: none}
	half := func(d time.Duration, memory float64) Work {
		return Work{Duration: d, Blocks: 8, Need: Resources{Threads: 256}, Memory: memory}
	}
	for _, c := range []struct {
		name string
		work []Work
		want []time.Duration
	}{
		{"alone", []Work{half(10*ms, 1)}, []time.Duration{10 * ms}},
		{"enough for both", []Work{half(10*ms, 0.4), half(10*ms, 0.6)}, []time.Duration{10 * ms, 10 * ms}},
		{"none for one of them", []Work{half(10*ms, 1), half(10*ms, 0)}, []time.Duration{10 * ms, 10 * ms}},
		{"all for both", []Work{half(10*ms, 1), half(10*ms, 1)}, []time.Duration{20 * ms, 20 * ms}},
		// The longer one has the memory to itself after the shorter has ended.
		{"then alone", []Work{half(10*ms, 1), half(30*ms, 1)}, []time.Duration{20 * ms, 40 * ms}},
		// Of 0.8 each, 0.2 of the time does not wait: 0.8/(0.2+0.8s) is 0.5 where s is 1.75.
		{"most for both", []Work{half(10*ms, 0.8), half(10*ms, 0.8)}, []time.Duration{16 * ms, 16 * ms}},
	} {
		got := ends(t, New(cfg, 0, nil), c.work...)
		for i := range got {
			if d := (got[i] - c.want[i]).Abs(); d > us {
				t.Errorf("%s: launch %d ended at %v, want %v", c.name, i, got[i], c.want[i])
			}
		}
	}
}

// TestEvictedBlocksLeaveInTime whatever others do to the memory.
func TestEvictedBlocksLeaveInTime(t *testing.T) {
	cfg := Config{Mode: CoRun, SMs: 1, SM: Resources{Blocks: 2, Threads: 1024, Registers: 65536}, Overhead: none}
	m := New(cfg, 0, nil)
	var launches [2]Launch
	for i := range launches {
		g, err := m.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		launches[i] = Launch{Work: Work{Duration: 10 * ms, Blocks: 1, Need: Resources{Threads: 512}, Memory: 1}}
		if err := c.Submit(&launches[i]); err != nil {
			t.Fatal(err)
		}
	}
	to := func(at time.Duration) (left bool) {
		for evs := m.Step(at); evs != nil; evs = m.Step(at) {
			for _, e := range evs {
				left = left || e.Kind == Evicted
			}
		}
		return left
	}
	to(2 * ms)
	m.Evict(&launches[0], ms)
	if to(2500 * us) {
		t.Fatal("the launch left early")
	}
	m.Kill(&launches[1]) // now the other has the memory to itself
	if to(2990 * us) {
		t.Error("the launch left before its time")
	}
	if !to(3 * ms) {
		t.Error("the launch has not left in time")
	}
}
