package fairshare

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKept tests that the time for which the GPU is kept for guests is charged to them, and only
// once: guests awaited at the same time share it.
func TestKept(t *testing.T) {
	const us = time.Microsecond
	const keep = 370 * us // measured from a launch's end
	batch := Launch{ID: 1, Guest: 1, Evictable: true, EvictionCost: keep - 2*switchCost}
	second := Launch{ID: 2, Guest: 2, Priority: 1, Running: true}
	third := Launch{ID: 3, Guest: 3, Priority: 1, Running: true}
	fourth := Launch{ID: 4, Guest: 1, Running: true, Evictable: true, Evicting: true}
	type request struct {
		after    time.Duration // the third guest's launch has ended
		launches []Launch      // beside the one that waits
	}
	for _, test := range []struct {
		name     string
		alone    bool          // the second guest has no launch
		ended    time.Duration // how long before the end of the third guest's launch that of the second guest's was
		first    []Launch      // are there when it ends
		requests []request
		want     [2]time.Duration // for the second, and the third
	}{
		{"one", true, 0, nil, []request{{200 * us, nil}}, [2]time.Duration{0, 200 * us}},
		{"two", false, 0, nil, []request{{200 * us, nil}}, [2]time.Duration{100 * us, 100 * us}},
		{"the other for longer", false, 170 * us, nil, []request{{300 * us, nil}}, [2]time.Duration{100 * us, 200 * us}},
		{"asked meanwhile", false, 170 * us, nil, []request{{100 * us, nil}, {250 * us, nil}, {300 * us, nil}}, [2]time.Duration{100 * us, 200 * us}},
		{"until it is over", false, 170 * us, nil, []request{{keep, nil}, {500 * us, nil}}, [2]time.Duration{100 * us, 270 * us}},
		{"asked late", false, 170 * us, nil, []request{{500 * us, nil}}, [2]time.Duration{100 * us, 400 * us}},
		{"until one is back", false, 0, nil, []request{{100 * us, []Launch{third}}, {300 * us, []Launch{third}}}, [2]time.Duration{50 * us, 50 * us}},
		{"once nobody leaves any more", false, 0, []Launch{fourth}, []request{{100 * us, []Launch{fourth}}, {200 * us, nil}, {300 * us, nil}}, [2]time.Duration{50 * us, 50 * us}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := New("hpf", Options{})
			if err != nil {
				t.Fatal(err)
			}
			var now time.Duration
			st := State{Guests: []Guest{{ID: 1, Weight: 1}, {ID: 2, Weight: 1}, {ID: 3, Weight: 1}}}
			tell := func(at time.Duration, l ...Launch) {
				now, st.Launches = at, l
				p.Decide(now, Event{}, st)
			}
			both := []Launch{second, third}
			if test.alone {
				both = both[1:]
			}
			for range 2 { // the first pause is of a length that is likely for the next
				tell(now+50*us, both...)
				tell(now + 500*us)
			}
			tell(now+50*us, both...)
			tell(now+500*us, third)
			end := now + test.ended
			tell(end, append([]Launch{batch}, test.first...)...)
			for _, a := range test.requests {
				tell(end+a.after, append([]Launch{batch}, a.launches...)...)
			}
			got := [2]time.Duration{p.(idleKeeper).takeKeptIdle(2), p.(idleKeeper).takeKeptIdle(3)}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("kept for the second and the third (-want +got):\n%s", diff)
			}
		})
	}
}

// keeping is a policy that keeps the GPU for guest 1 for given times.
type keeping struct{ left time.Duration }

func (k *keeping) Decide(time.Duration, Event, State) ([]Verdict, time.Duration) { return nil, 0 }
func (k *keeping) keepsIdle() bool                                               { return k.left > 0 }
func (k *keeping) takeKeptIdle(id GuestID) (d time.Duration) {
	if id == 1 {
		d, k.left = k.left, 0
	}
	return d
}

// TestKeptOfQuietTime tests that time kept for a guest in an unmeasured quiet phase is not also
// counted as left unused by it, through the polling phase that stands for the quiet phase.
func TestKeptOfQuietTime(t *testing.T) {
	const ms = time.Millisecond
	for _, watched := range []time.Duration{0, 10 * ms, 20 * ms} {
		k := new(keeping)
		b := Bound(k).(*bounded)
		st := State{Round: 24 * ms, Guests: []Guest{
			{ID: 1, Weight: 1, Active: true, Backlogged: true, Quota: Quota{Guarantee: 0.5}},
			{ID: 2, Weight: 1, Active: true, Backlogged: true},
		}}
		// Half of the time the GPU is kept for the first guest, and is idle.
		tell := func(now time.Duration, phase PhaseKind, length, watched time.Duration) {
			for i := range st.Guests {
				st.Guests[i].Idle, st.Guests[i].Used = watched/2, watched/4
			}
			k.left = length / 2
			b.Decide(now, Event{Kind: Tick, Phase: phase, Length: length, Watched: watched}, st)
		}
		for now := time.Duration(0); now < time.Second; now += 24 * ms {
			tell(now+20*ms, QuietPhase, 20*ms, watched)
			tell(now+24*ms, PollPhase, 4*ms, 4*ms)
			if unused := time.Duration(b.of[0].unused); unused > ms/10 {
				t.Fatalf("%v of 20 ms watched: %v count as left unused", watched, unused)
			}
		}
	}
}
