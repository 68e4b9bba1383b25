package fairshare

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTriplet tests FLEP §5.1 on the triplet, sentence by sentence: T_e, T_w and T_r of one launch,
// through a policy that gets the launch's events.
func TestTriplet(t *testing.T) {
	const ms = time.Millisecond
	type times struct{ Te, Tw, Tr time.Duration }
	p := newHPF(Options{})
	l := Launch{ID: 1, Guest: 1, Evictable: true, Predicted: 10 * ms}
	other := Launch{ID: 2, Guest: 2, Evictable: true, Priority: 1, Predicted: 5 * ms}
	st := State{Guests: []Guest{{ID: 1, Weight: 1}, {ID: 2, Weight: 1}}}
	at := func(now time.Duration, kind EventKind, launches ...Launch) times {
		st.Launches = launches
		p.Decide(now, Event{Kind: kind}, st)
		got := p.book.of[0]
		return times{got.predicted, got.waited, got.remaining}
	}
	for _, step := range []struct {
		why  string
		got  func() times
		want times
	}{
		{"T_r's initial value is the same as T_e", func() times { return at(0, Arrived, l) }, times{10 * ms, 0, 10 * ms}},
		{"its value decreases when it runs on the GPU; updated when 1) a new kernel arrives", func() times {
			l.Running, l.Used = true, 3*ms
			return at(3*ms, Arrived, l, other)
		}, times{10 * ms, 0, 7 * ms}},
		{"updated when 2) a kernel is preempted", func() times {
			l.Running, l.Used, other.Running = false, 4*ms, true
			return at(4*ms, Evicted, l, other)
		}, times{10 * ms, 0, 6 * ms}},
		{"whenever a kernel is active but not running on the GPU, its T_w accumulates: only in the three cases", func() times {
			return at(6*ms, Tick, l, other)
		}, times{10 * ms, 0, 6 * ms}},
		{"updated when 3) a kernel finishes execution", func() times { return at(9*ms, Finished, l) }, times{10 * ms, 5 * ms, 6 * ms}},
		{"T_e, once initialized, is never updated", func() times {
			l.Running, l.Used, l.Predicted = true, 6*ms, 99*ms
			return at(11*ms, Arrived, l, other)
		}, times{10 * ms, 5 * ms, 4 * ms}},
		{"(and T_r ends at 0, where the prediction was too low)", func() times {
			l.Used = 12 * ms
			return at(17*ms, Arrived, l, other)
		}, times{10 * ms, 5 * ms, 0}},
	} {
		if diff := cmp.Diff(step.want, step.got()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
	}
}
