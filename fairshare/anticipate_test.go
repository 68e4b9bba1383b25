package fairshare_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// loading is the time that an H100 takes to load a context that is newly ready.
const loading = 135 * us

// beside runs an urgent guest beside a batch guest with kernels of 20 ms, on a GPU with an H100's
// times. The urgent guest's kernels have the given length, one after each of the pauses. It runs
// until all of them are done.
func beside(o fairshare.Options, work time.Duration, pauses []time.Duration) (s *kernelSim, took []time.Duration) {
	o.Evictions = fairshare.Rate{PerSecond: -1}
	s = newKernelSim("hpf", o, guests(1, 1)...)
	s.turn = loading
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, work: 20 * ms, repeat: true, leave: 30 * us, again: 10 * us})
	for _, pause := range pauses {
		k := s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 10}, work: work, at: s.now + pause})
		for k.finished == 0 {
			s.run(s.now + 10*us)
		}
		took = append(took, k.finished-k.at)
		s.run(k.finished)
	}
	return s, took
}

// batch returns the work that the batch guest got done.
func (s *kernelSim) batch() (sum time.Duration) {
	for _, k := range append(slices.Clone(s.done), s.here...) {
		if k.Guest == 1 {
			sum += k.work - time.Duration(k.left)
		}
	}
	return sum
}

func sum(all []time.Duration) (s time.Duration) {
	for _, d := range all {
		s += d
	}
	return s
}

func repeated(d time.Duration, n int) (all []time.Duration) {
	for range n {
		all = append(all, d)
	}
	return all
}

// TestAnticipation tests that a program that launches each of its kernels 40 µs after the end of
// the previous one has the GPU to itself. Without anticipation each of its kernels takes the GPU
// back from a kernel that had not begun.
func TestAnticipation(t *testing.T) {
	pauses := repeated(40*us, 300)
	median := func(o fairshare.Options) time.Duration {
		_, took := beside(o, 100*us, pauses)
		slices.Sort(took)
		return took[len(took)/2]
	}
	if with, without := median(fairshare.Options{}), median(fairshare.Options{AtOnce: true}); with != 100*us || without < 300*us {
		t.Errorf("a kernel of 100 µs takes %v, without anticipation %v", with, without)
	}
}

// TestAnticipationStallsNobody tests that a guest whose pauses are too long to be worth waiting for
// stalls nobody: everything is as it is without anticipation.
func TestAnticipationStallsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		work := time.Duration(rapid.IntRange(10, 2000).Draw(t, "work µs")) * us
		var pauses []time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "launches") {
			pauses = append(pauses, time.Duration(rapid.IntRange(600, 5000).Draw(t, "pause µs"))*us)
		}
		with, took := beside(fairshare.Options{}, work, pauses)
		without, want := beside(fairshare.Options{AtOnce: true}, work, pauses)
		if diff := cmp.Diff(want, took); diff != "" || with.batch() != without.batch() {
			t.Errorf("the batch guest did %v, without anticipation %v; urgent kernels (-without +with):\n%s", with.batch(), without.batch(), diff)
		}
		with.report(t)
	})
}

// TestAnticipationIsNoWeapon tests that a guest with very short kernels, which always returns while
// the GPU still waits for it, takes no more of the others' time than one eviction for each kernel.
func TestAnticipationIsNoWeapon(t *testing.T) {
	for _, policy := range []string{"hpf", "piv"} {
		for _, work := range []time.Duration{us, 10 * us} {
			for _, pause := range []time.Duration{40 * us, 200 * us, 300 * us} {
				s := newKernelSim(policy, fairshare.Options{}, guests(1, 1)...)
				s.turn = loading
				s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, work: 20 * ms, repeat: true, leave: 30 * us, again: 10 * us})
				s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 10}, work: work, repeat: true, pause: pause})
				s.run(time.Second)
				if had := s.had[1].Seconds(); had < 0.25 {
					t.Errorf("%s, kernels of %v each %v: the batch guest had %.3f of the GPU, the urgent one %.4f, nobody %.3f",
						policy, work, pause, had, s.had[2].Seconds(), s.idle.Seconds())
				}
				t.Logf("%s, %v, %v: %.3f", policy, work, pause, s.had[1].Seconds())
			}
		}
	}
}

// quotaSim simulates an urgent guest with kernels of 100 µs and pauses of the same length, for
// which the GPU is kept, beside a batch guest. Both have quotas.
func quotaSim(urgent, batch fairshare.Quota) *kernelSim {
	s := newKernelSim("hpf", fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}}, guests(1, 1)...)
	s.policy = fairshare.Bound(s.policy)
	s.st.Guests[0].Quota, s.st.Guests[1].Quota = batch, urgent
	s.turn = loading
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, work: 20 * ms, repeat: true, leave: 30 * us, again: 10 * us})
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 10}, work: 100 * us, repeat: true, pause: 100 * us})
	return s
}

// TestAnticipationIsCapped tests that the time for which the GPU is kept for a guest counts against
// its cap.
func TestAnticipationIsCapped(t *testing.T) {
	for _, limit := range []float64{0.1, 0.3, 0.6} {
		s := quotaSim(fairshare.Quota{Cap: limit}, fairshare.Quota{})
		s.rounds(4 * time.Second)
		kept := s.idle.Seconds() / s.now.Seconds()
		urgent, batch := s.had[2].Seconds()/s.now.Seconds(), s.had[1].Seconds()/s.now.Seconds()
		if off := math.Abs(urgent + kept - limit); off > 0.03 || batch < 0.9*(1-limit) {
			t.Errorf("with a cap of %v the urgent guest has %.3f of the GPU, it is kept for it for %.3f, and the batch guest has %.3f", limit, urgent, kept, batch)
		}
	}
}

// TestGuaranteeBesideAnticipation tests that a guest whose launch waits while the GPU is kept for
// another guest does not lose any of its guarantee.
func TestGuaranteeBesideAnticipation(t *testing.T) {
	for _, guarantee := range []float64{0.2, 0.5, 0.8} {
		s := quotaSim(fairshare.Quota{}, fairshare.Quota{Guarantee: guarantee})
		s.rounds(4 * time.Second)
		if batch := s.had[1].Seconds() / s.now.Seconds(); batch < guarantee-0.05 {
			t.Errorf("with a guarantee of %v the batch guest has %.3f of the GPU, the urgent one %.3f, and it is kept for it for %.3f",
				guarantee, batch, s.had[2].Seconds()/s.now.Seconds(), s.idle.Seconds()/s.now.Seconds())
		}
	}
}

// TestGuaranteeOfWhomTheGPUIsKeptFor tests that time for which the GPU is kept for a guest counts
// once, as given to it, and not also as time that it left unused. A guest would otherwise lack more
// of its guarantee while a more urgent guest has the GPU.
func TestGuaranteeOfWhomTheGPUIsKeptFor(t *testing.T) {
	s := quotaSim(fairshare.Quota{Guarantee: 0.7}, fairshare.Quota{})
	s.st.Guests = append(s.st.Guests, guests(1, 1, 1)[2])
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 3, Priority: 20, Evictable: true}, work: 30 * ms, repeat: true, pause: 20 * ms, leave: 30 * us, again: 10 * us})
	s.rounds(4 * time.Second)
	// Without a guarantee the guest gets 0.2, and the GPU is kept for it for as long.
	if urgent := s.had[2].Seconds() / s.now.Seconds(); urgent < 0.24 {
		t.Errorf("beside one that is more urgent it has %.3f of the GPU, which is kept for it for %.3f", urgent, s.idle.Seconds()/s.now.Seconds())
	}
}

// TestAnticipationCostsNoMoreAgain tests, for any pauses, that the GPU time lost to waiting,
// evicting and loading is at most twice the time lost without anticipation. On the whole, urgent
// kernels are no later than without it, except for the few after which their guest changed its
// behaviour.
func TestAnticipationCostsNoMoreAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		work := time.Duration(rapid.IntRange(10, 2000).Draw(t, "work µs")) * us
		most := rapid.SampledFrom([]int{60, 320, 500, 1000, 5000}).Draw(t, "longest pause µs")
		var pauses []time.Duration
		for range rapid.IntRange(1, 100).Draw(t, "launches") {
			pauses = append(pauses, time.Duration(rapid.IntRange(20, most).Draw(t, "pause µs"))*us)
		}
		with, took := beside(fairshare.Options{}, work, pauses)
		without, atOnce := beside(fairshare.Options{AtOnce: true}, work, pauses)
		waste := func(s *kernelSim) time.Duration { return s.now - s.batch() - time.Duration(len(pauses))*work }
		if got, most := waste(with), 2*waste(without)+loading; got > most {
			t.Errorf("%v of %v are lost, without anticipation %v", got, with.now, waste(without))
		}
		if got, most := sum(took), sum(atOnce)+8*loading; got > most {
			t.Errorf("urgent kernels take %v, without anticipation %v", got, sum(atOnce))
		}
		with.report(t)
	})
}

// TestAnticipationDecides tests that the GPU is kept for a guest that is worth waiting for, until
// it no longer is.
func TestAnticipationDecides(t *testing.T) {
	const cost = 100 * us // so that the GPU is kept for 370 µs
	waiting := fairshare.Launch{ID: 1, Guest: 1, Evictable: true, EvictionCost: cost}
	urgent := fairshare.Launch{ID: 2, Guest: 2, Priority: 1, Running: true}
	run := []fairshare.Verdict{verdictRun(1, 1)}
	const keep = cost + 2*loading
	const ran = 500 * us // run time of each of its launches
	for _, test := range []struct {
		name   string
		policy string
		pauses []time.Duration // of the urgent guest
		ran    time.Duration   // run time of its launches; 0: ran
		change func(st *fairshare.State)
		after  time.Duration // since its launch's end
		want   []fairshare.Verdict
		next   time.Duration
	}{
		{name: "it comes back soon", pauses: []time.Duration{50 * us}, want: nil, next: keep},
		{name: "it is still likely to", pauses: []time.Duration{50 * us}, after: 300 * us, want: nil, next: keep - 300*us},
		{name: "it did not", pauses: []time.Duration{50 * us}, after: keep, want: run},
		{name: "it had the GPU for less than it would be waited for", pauses: []time.Duration{50 * us}, ran: keep / 3, want: run},
		{name: "nothing is known of it", want: run},
		{name: "it takes its time", pauses: []time.Duration{keep + 1}, want: run},
		{name: "it takes its time more often than not", pauses: []time.Duration{50 * us, ms, ms}, want: run},
		{name: "it takes its time as often as not", pauses: []time.Duration{ms, 50 * us, ms, 50 * us}, want: nil, next: keep},
		{name: "it took its time long ago", pauses: append(repeated(ms, 9), repeated(50*us, 4)...), want: nil, next: keep},
		{name: "it is not the more urgent", pauses: []time.Duration{50 * us}, want: run,
			change: func(st *fairshare.State) { st.Launches[0].Priority = 1 }},
		{name: "its launches would not run", pauses: []time.Duration{50 * us}, want: append([]fairshare.Verdict{{Guest: 2, Action: fairshare.Resume}}, run...),
			change: func(st *fairshare.State) { st.Guests[1].Suspended = true }},
		{name: "contexts need not be loaded", pauses: []time.Duration{50 * us}, next: cost,
			change: func(st *fairshare.State) { st.CoRuns = true }},
		{name: "evictions take very long", pauses: []time.Duration{50 * us}, next: 500 * us,
			change: func(st *fairshare.State) { st.Launches[0].EvictionCost = 10 * ms }},
		{name: "piv", policy: "piv", pauses: []time.Duration{50 * us}, next: keep},
		{name: "reorder", policy: "reorder", pauses: []time.Duration{50 * us}, want: run},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.policy == "" {
				test.policy = "hpf"
			}
			if test.ran == 0 {
				test.ran = ran
			}
			p, err := fairshare.New(test.policy, fairshare.Options{})
			if err != nil {
				t.Fatal(err)
			}
			now := ms
			st := fairshare.State{Guests: guests(1, 1)}
			for _, pause := range test.pauses {
				st.Launches = []fairshare.Launch{urgent}
				p.Decide(now, fairshare.Event{Kind: fairshare.Arrived, Guest: 2, Launch: 2}, st)
				now += test.ran
				st.Launches = nil
				p.Decide(now, fairshare.Event{Kind: fairshare.Finished, Guest: 2, Launch: 2}, st)
				now += pause
			}
			st.Launches = []fairshare.Launch{urgent}
			p.Decide(now, fairshare.Event{Kind: fairshare.Arrived, Guest: 2, Launch: 2}, st)
			now += test.ran
			st.Launches = []fairshare.Launch{waiting}
			if test.change != nil {
				test.change(&st)
			}
			v, next := p.Decide(now, fairshare.Event{Kind: fairshare.Finished, Guest: 2, Launch: 2}, st)
			if test.after > 0 {
				v, next = p.Decide(now+test.after, fairshare.Event{}, st)
			}
			if diff := cmp.Diff(test.want, slices.Clone(v)); diff != "" || next != test.next {
				t.Errorf("asks again in %v, want %v; verdicts (-want +got):\n%s", next, test.next, diff)
			}
		})
	}
}
