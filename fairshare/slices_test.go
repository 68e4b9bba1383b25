package fairshare_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// limits are those of an H100.
var limits = fairshare.SliceLimits{
	Loss: fairshare.DefaultSliceLoss, Switch: fairshare.DefaultSliceSwitch, Min: fairshare.DefaultMinSlice, Max: fairshare.DefaultMaxSlice,
}

// checkShares fails the test if a share is off by more than the given points.
func checkShares(t rapid.TB, parts []float64, guests []*slicedGuest, points float64) {
	t.Helper()
	var sum float64
	for _, g := range guests {
		sum += g.weight
	}
	for i, g := range guests {
		if want := g.weight / sum; math.Abs(parts[i]-want) > points/100 {
			t.Errorf("guest %d of weight %v got %.3f, is entitled to %.3f (of all: %.3f; slice %v, suspended %d times)", i, g.weight, parts[i], want, parts, g.slice, g.suspensions)
		}
	}
}

// TestSlicesHoldWeights tests that over five seconds each of two to eight guests of weights 1:2:4
// is within a point of its entitlement if its kernels fill its slices. Next to none of the GPU is
// lost, and no guest is suspended.
func TestSlicesHoldWeights(t *testing.T) {
	holdWeights(t, []time.Duration{300 * us, ms, 3 * ms, 7 * ms, 20 * ms}, 1, 0.97, 0)
}

// TestSlicesOfShortKernels tests the same with some guests whose kernels on the GPU all end before
// the slice does. Suspensions of the others make up for the rest.
func TestSlicesOfShortKernels(t *testing.T) {
	holdWeights(t, []time.Duration{50 * us, 50 * us, 100 * us, ms, 3 * ms, 20 * ms}, 1.5, 0.93, 60)
}

// holdWeights shares the GPU among guests of weights 1:2:4 with kernels of some of the lengths. It
// checks that shares are within the given points, that the GPU is busy for at least leastBusy of
// the time, and that a guest is suspended at most mostHolds times in seven seconds.
func holdWeights(t *testing.T, lengths []time.Duration, points, leastBusy float64, mostHolds int) {
	t.Helper()
	for n := 2; n <= 8; n++ {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%d guests, %d", n, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				var guests []*slicedGuest
				for i := range n {
					guests = append(guests, saturating(r, float64(int(1)<<(i%3)), 1, lengths[r.IntN(len(lengths))]))
				}
				s := newSlicedGPU(seed, guests...)
				s.shares(2 * time.Second)
				parts, busy := s.shares(5 * time.Second)
				checkShares(t, parts, guests, points)
				if busy < leastBusy {
					t.Errorf("the GPU executed %.3f of the time", busy)
				}
				for i, g := range guests {
					if g.suspensions > mostHolds {
						t.Errorf("guest %d was suspended %d times", i, g.suspensions)
					}
				}
			})
		}
	}
}

// TestSlicesHoldAnyWeights tests the same for random weights and numbers of contexts.
func TestSlicesHoldAnyWeights(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		rnd := rand.New(rand.NewPCG(seed, 1))
		var guests []*slicedGuest
		for range rapid.IntRange(2, 6).Draw(r, "guests") {
			length := time.Duration(rapid.IntRange(50, 20000).Draw(r, "length")) * us
			guests = append(guests, saturating(rnd, float64(rapid.IntRange(1, 8).Draw(r, "weight")), rapid.IntRange(1, 3).Draw(r, "contexts"), length))
		}
		s := newSlicedGPU(seed, guests...)
		s.shares(3 * time.Second)
		parts, _ := s.shares(5 * time.Second)
		checkShares(r, parts, guests, 2)
	})
}

// TestSlicesFollowChanges tests a changed weight, a guest that stops and one that begins.
func TestSlicesFollowChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	guests := []*slicedGuest{saturating(r, 1, 1, 200*us), saturating(r, 2, 1, 5*ms), saturating(r, 4, 1, 20*ms)}
	s := newSlicedGPU(1, guests...)
	s.shares(3 * time.Second)
	guests[0].weight = 8
	s.shares(time.Second)
	parts, _ := s.shares(5 * time.Second)
	checkShares(t, parts, guests, 2)

	// The second guest has no work for a while. The others share by their weights at once, and do
	// so again when it is back.
	c := guests[1].contexts[0]
	length := c.length
	c.think, c.queue, c.full = time.Hour, nil, false
	c.next = s.now + time.Hour
	s.shares(time.Second)
	parts, _ = s.shares(3 * time.Second)
	checkShares(t, []float64{parts[0], parts[2]}, []*slicedGuest{guests[0], guests[2]}, 2)
	c.think, c.next, c.length = 0, 0, length
	s.shares(time.Second)
	parts, _ = s.shares(5 * time.Second)
	checkShares(t, parts, guests, 2)
}

// TestSlicesAreLeftAlone tests that few slices are set once shares are right, and none if no guest
// waits for the GPU. Setting one takes the driver half a millisecond.
func TestSlicesAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		think time.Duration
		most  float64 // slices set a second, for all guests
	}{{0, 5}, {20 * ms, 5}, {200 * ms, 1}} {
		r := rand.New(rand.NewPCG(1, 8))
		var guests []*slicedGuest
		for range 8 {
			g := saturating(r, 1, 1, 3*ms)
			g.contexts[0].think = c.think
			guests = append(guests, g)
		}
		s := newSlicedGPU(1, guests...)
		s.shares(2 * time.Second)
		s.sets = 0
		const seconds = 5
		s.shares(seconds * time.Second)
		if rate := float64(s.sets) / seconds; rate > c.most {
			t.Errorf("with pauses of %v %.1f slices are set a second", c.think, rate)
		}
	}
}

// TestSlicesBesideIdlers tests that a guest that needs little gets it, and that the others share
// the rest by weight.
func TestSlicesBesideIdlers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	guests := []*slicedGuest{saturating(r, 1, 1, ms), saturating(r, 3, 1, 4*ms), saturating(r, 4, 1, 300*us)}
	guests[2].contexts[0].think = 10 * ms
	s := newSlicedGPU(1, guests...)
	s.shares(3 * time.Second)
	parts, busy := s.shares(5 * time.Second)
	if rest := parts[0] + parts[1]; math.Abs(parts[0]/rest-0.25) > 0.02 || busy < 0.96 {
		t.Errorf("shares %.3f, the GPU executed %.3f of the time", parts, busy)
	}
	if guests[0].suspensions+guests[1].suspensions > 0 {
		t.Errorf("suspended %d and %d times", guests[0].suspensions, guests[1].suspensions)
	}
}

// TestSlicesBesideOneThatComesAndGoes tests that the other guests share by weight all the time.
func TestSlicesBesideOneThatComesAndGoes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	guests := []*slicedGuest{saturating(r, 1, 1, 100*us), saturating(r, 3, 1, 15*ms), saturating(r, 4, 1, 2*ms)}
	s := newSlicedGPU(1, guests...)
	c := guests[2].contexts[0]
	use := func(d time.Duration) (used [2]time.Duration) {
		before := [2]time.Duration{guests[0].used, guests[1].used}
		for end := s.now + d; s.now < end; {
			c.think = 0
			if s.now/(70*ms)%2 == 1 {
				c.think, c.queue, c.full, c.next = ms, nil, false, s.now+70*ms
			}
			s.round()
		}
		return [2]time.Duration{guests[0].used - before[0], guests[1].used - before[1]}
	}
	use(3 * time.Second)
	used := use(5 * time.Second)
	if part := float64(used[0]) / float64(used[0]+used[1]); math.Abs(part-0.25) > 0.01 {
		t.Errorf("of two guests by 1:3 the first got %.3f", part)
	}
}

// TestSlicesAndSuspensions tests that suspension does what slices can't, a cap and weights further
// apart than slices can be, without the two working against each other.
func TestSlicesAndSuspensions(t *testing.T) {
	t.Run("cap", func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 2))
		guests := []*slicedGuest{saturating(r, 1, 1, ms), saturating(r, 1, 1, 4*ms), saturating(r, 1, 1, 4*ms)}
		guests[0].quota.Cap = 0.1
		s := newSlicedGPU(1, guests...)
		s.shares(3 * time.Second)
		parts, _ := s.shares(5 * time.Second)
		for i, want := range []float64{0.1, 0.45, 0.45} {
			if math.Abs(parts[i]-want) > 0.02 {
				t.Errorf("shares %.3f, want %v for guest %d", parts, want, i)
			}
		}
		if guests[1].suspensions+guests[2].suspensions > 0 {
			t.Errorf("suspended %d and %d times for another's cap", guests[1].suspensions, guests[2].suspensions)
		}
	})
	t.Run("guarantee", func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 2))
		var guests []*slicedGuest
		for _, length := range []time.Duration{200 * us, 3 * ms, 20 * ms, ms, 200 * us, 3 * ms} {
			guests = append(guests, saturating(r, 1, 1, length))
		}
		guests[0].quota.Guarantee = 0.5
		s := newSlicedGPU(1, guests...)
		s.shares(3 * time.Second)
		parts, _ := s.shares(5 * time.Second)
		for i, g := range guests {
			if want := map[bool]float64{true: 0.5, false: 0.1}[i == 0]; math.Abs(parts[i]-want) > 0.01 || g.suspensions > 2 {
				t.Errorf("guest %d got %.3f, want %v; suspended %d times", i, parts[i], want, g.suspensions)
			}
		}
	})
	t.Run("weights", func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 2))
		guests := []*slicedGuest{saturating(r, 1, 1, 5*ms), saturating(r, 500, 1, 200*us)}
		s := newSlicedGPU(1, guests...)
		s.shares(3 * time.Second)
		before := guests[0].suspensions
		parts, _ := s.shares(10 * time.Second)
		checkShares(t, parts, guests, 2)
		// Each suspension pays back tens of milliseconds of debt.
		if n := guests[0].suspensions - before; n > 40 {
			t.Errorf("suspended %d times in 10 s", n)
		}
	})
}

// TestSlicesKeepToTheirLimits tests that slices stay within their limits for any weights.
func TestSlicesKeepToTheirLimits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p, err := fairshare.New("dfq", fairshare.Options{})
		if err != nil {
			r.Fatal(err)
		}
		var now time.Duration
		for range rapid.IntRange(1, 60).Draw(r, "rounds") {
			length := time.Duration(rapid.IntRange(1, 300).Draw(r, "length")) * ms
			now += length
			st := fairshare.State{Round: 10 * ms, Slices: limits}
			for id := range rapid.IntRange(0, 5).Draw(r, "guests") {
				st.Guests = append(st.Guests, fairshare.Guest{
					ID: fairshare.GuestID(id + 1), Weight: rapid.Float64Range(0.001, 1000).Draw(r, "weight"),
					Used:   time.Duration(rapid.Int64Range(0, int64(length)).Draw(r, "used")),
					Active: rapid.Bool().Draw(r, "active"), Backlogged: rapid.Bool().Draw(r, "backlogged"), Suspended: rapid.Bool().Draw(r, "suspended"),
					Groups: rapid.IntRange(0, 32).Draw(r, "groups"),
				})
			}
			verdicts, _ := p.Decide(now, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: length, Watched: length}, st)
			for _, v := range verdicts {
				if v.Action == fairshare.Slice && (v.Slice < limits.Min || v.Slice > limits.Max) {
					r.Fatalf("slice of %v", v.Slice)
				}
			}
		}
	})
}

// TestSlicesWithinGuarantees tests that guarantees which leave nothing, or next to nothing, leave
// their guests slices and correct shares.
func TestSlicesWithinGuarantees(t *testing.T) {
	for _, c := range [][2]float64{{0.7, 0.3}, {0.3, 0.7}, {0.7, 0.29}} { // 1-0.7-0.3 is not 0, but 6e-17
		r := rand.New(rand.NewPCG(1, 2))
		var guests []*slicedGuest
		for _, g := range []float64{c[0], c[1], 0} {
			guests = append(guests, saturating(r, 1, 1, ms))
			guests[len(guests)-1].quota.Guarantee = g
		}
		s := newSlicedGPU(1, guests...)
		s.shares(time.Second)
		parts, _ := s.shares(5 * time.Second)
		for i := range c {
			if g := guests[i]; parts[i] < c[i]-0.03 || g.slice < 10*ms {
				t.Errorf("guarantees %v: guest %d got %.3f, with slices of %v", c, i, parts[i], g.slice)
			}
		}
	}
}

// TestSlicesOfWeightsFarApart tests that each slice is within its limits however far weights are
// apart, and that the heavier guest's slice is not the shorter one.
func TestSlicesOfWeightsFarApart(t *testing.T) {
	for _, weight := range []float64{1e3, 1e6, 1e9, 1e16, 1e300} {
		p, err := fairshare.New("dfq", fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		st := fairshare.State{Round: 10 * ms, Slices: limits, Guests: []fairshare.Guest{
			{ID: 1, Weight: 1, Active: true, Backlogged: true, Groups: 1}, {ID: 2, Weight: weight, Active: true, Backlogged: true, Groups: 1},
		}}
		verdicts, _ := p.Decide(0, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 10 * ms, Watched: 10 * ms}, st)
		want := []fairshare.Verdict{{Guest: 1, Action: fairshare.Slice, Slice: limits.Min}, {Guest: 2, Action: fairshare.Slice, Slice: limits.Max}}
		if !slices.Equal(verdicts, want) {
			t.Errorf("weights 1 and %v: %+v, want %+v", weight, verdicts, want)
		}
	}
}

// TestNoSlicesWhereNoneCanBeSet tests that no slices are set if the GPU can't set any.
func TestNoSlicesWhereNoneCanBeSet(t *testing.T) {
	for _, name := range fairshare.Names() {
		p, err := fairshare.New(name, fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range time.Duration(5) {
			verdicts, _ := p.Decide(i*time.Second, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: time.Second}, fairshare.State{Round: ms, Guests: []fairshare.Guest{
				{ID: 1, Weight: 1, Active: true, Backlogged: true, Groups: 1, Urgency: 3}, {ID: 2, Weight: 3, Active: true, Backlogged: true, Groups: 1},
			}})
			for _, v := range verdicts {
				if v.Action == fairshare.Slice {
					t.Errorf("%s: %+v", name, v)
				}
			}
		}
	}
}

// TestUrgentSlices tests that the most urgent guests have the longest slices, that guests beside
// them whose kernels stay on the GPU have short ones, and that no slices are set if all are equally
// urgent. Each slice is set once.
func TestUrgentSlices(t *testing.T) {
	p, err := fairshare.New("hpf", fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type launch struct {
		guest     int
		evictable bool
		cost      time.Duration
	}
	type slices map[fairshare.GuestID]time.Duration
	const short = 250 * us
	for i, c := range []struct {
		now      time.Duration
		urgency  []int
		launches []launch
		want     slices
	}{
		{0, nil, nil, nil},
		{0, []int{0, 0}, []launch{{1, false, 0}}, slices{1: 0, 2: 0}},
		{1 * ms, []int{0, 3}, []launch{{1, false, 0}}, slices{1: short, 2: limits.Max}},
		{2 * ms, []int{0, 3}, nil, nil},
		{3 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 0}}, slices{3: limits.Max, 4: 0}},
		{4 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 2 * ms}, {3, false, 0}}, nil},
		{5 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 3 * ms}}, slices{4: short}},
		{900 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 60 * us}}, nil},
		{1002 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 60 * us}}, slices{1: 0}},
		{1006 * ms, []int{0, 3, 3, 2}, []launch{{4, true, 60 * us}}, slices{4: 0}},
		{1007 * ms, []int{5, 3, 3, 2}, nil, slices{1: limits.Max, 2: 0, 3: 0}},
		{1008 * ms, []int{5}, nil, slices{1: 0}},
	} {
		st := fairshare.State{Slices: limits}
		for i, u := range c.urgency {
			st.Guests = append(st.Guests, fairshare.Guest{ID: fairshare.GuestID(i + 1), Weight: 1, Urgency: u})
		}
		for i, l := range c.launches {
			st.Launches = append(st.Launches, fairshare.Launch{
				ID: fairshare.LaunchID(i + 1), Guest: fairshare.GuestID(l.guest), Running: true, Evictable: l.evictable, EvictionCost: l.cost,
			})
		}
		verdicts, _ := p.Decide(c.now, fairshare.Event{Kind: fairshare.Changed}, st)
		var said slices
		for _, v := range verdicts {
			if v.Action != fairshare.Slice {
				continue
			}
			if said == nil {
				said = make(slices)
			}
			said[v.Guest] = v.Slice
		}
		if fmt.Sprint(said) != fmt.Sprint(c.want) {
			t.Errorf("%d: at %v, urgencies %v, launches %v: said %v, want %v", i, c.now, c.urgency, c.launches, said, c.want)
		}
	}
}
