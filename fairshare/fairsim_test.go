package fairshare_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/fairshare"
)

// program is how a program beside LoGA's throttles launches (§5.5, figure 11), as the
// kernels of the corpus do on an H100: batches of short kernels, which it waits for and
// copies something before the next, or kernels without end, sixteen at a time.
type program struct {
	name   string
	kernel time.Duration
	batch  int
	think  time.Duration // 0: it has more at once
}

var programs = []program{
	{"bfs", 10 * us, 4, 200 * us},
	{"hotspot", 5500 * time.Nanosecond, 4, 160 * us},
	{"kmeans", 24 * us, 2, 100 * us},
	{"lennardjones", 28 * us, 2, 145 * us},
	{"matmul", 11 * us, 0, 0},
	{"nnlayer", 32 * us, 0, 0},
	{"particlefilter", 32 * us, 6, 70 * us},
	{"srad", 9 * us, 6, 100 * us},
	{"nbody", 42 * us, 0, 0},
	{"long", 700 * us, 0, 0},
}

// guest is the program's.
func (p *program) guest(r *rand.Rand) *slicedGuest {
	return &slicedGuest{weight: 1, contexts: []*slicedContext{{length: around(r, p.kernel), think: p.think, batch: p.batch, depth: 16}}}
}

// throttle has kernels of 200 µs and pauses of 800 µs.
func throttle(r *rand.Rand) *slicedGuest {
	return &slicedGuest{weight: 1, contexts: []*slicedContext{{length: around(r, 200*us), think: 800*us - refill, next: time.Duration(r.Int64N(int64(ms)))}}}
}

// outcome is what came of a program beside others.
type outcome struct {
	turn float64         // time for each of its kernels
	used []time.Duration // its own first
	held int             // suspensions
}

// beside is what comes of a program and some throttles under a policy.
func (p *program) beside(policy string, throttles int, seed uint64) (o outcome) {
	const idle, warm, window = 140 * ms, 160 * ms, 240 * ms // as it is measured
	r := rand.New(rand.NewPCG(seed, 11))
	guests := []*slicedGuest{p.guest(r)}
	for range throttles {
		guests = append(guests, throttle(r))
	}
	s := newSlicedGPUUnder(policy, seed, guests...)
	// To a context that has just got work, from one that has run dry (135 µs) or not.
	s.cost = 140 * us
	// LoGA could not stop what ran.
	if s.deep = 2 * ms; policy != "dfq" {
		s.deep = -1
	}
	// Before, nobody does anything.
	for _, g := range guests {
		g.contexts[0].next += idle
	}
	s.shares(idle + warm)
	for _, g := range guests {
		o.used = append(o.used, -g.used)
	}
	ended := guests[0].contexts[0].ended
	s.shares(window)
	for i, g := range guests {
		o.used[i] += g.used
		o.held += g.holds
	}
	o.turn = float64(window) / float64(guests[0].contexts[0].ended-ended)
	return o
}

// fair is the turnaround that is fair (LoGA §5.5), by what was used without scheduling.
func (o *outcome) fair() float64 {
	var sum time.Duration
	for _, u := range o.used {
		sum += u
	}
	return o.turn * float64(o.used[0]) * float64(len(o.used)) / float64(sum)
}

// TestDFQIsNearestToFair: beside four throttles, programs' turnarounds are nearer to
// what is fair than they are without scheduling and under what LoGA prints.
func TestDFQIsNearestToFair(t *testing.T) {
	const seeds = 5
	policies := []string{"none", "loga-cl", "dfq-loga", "dfq"}
	distance := make(map[string]float64)
	for i := range programs {
		p := &programs[i]
		turns := make(map[string]float64)
		for seed := range uint64(seeds) {
			alone := p.beside("none", 0, seed)
			unscheduled := p.beside("none", 4, seed)
			turns["fair"] += unscheduled.fair() / alone.turn / seeds
			for _, policy := range policies {
				o := p.beside(policy, 4, seed)
				turns[policy] += o.turn / alone.turn / seeds
				distance[policy] += math.Abs(math.Log(o.turn/unscheduled.fair())) / seeds / float64(len(programs))
			}
		}
		t.Logf("%-15s fair %5.2f, none %5.2f, loga-cl %5.2f, dfq-loga %5.2f, dfq %5.2f", p.name, turns["fair"], turns["none"], turns["loga-cl"], turns["dfq-loga"], turns["dfq"])
	}
	for _, policy := range policies {
		distance[policy] = math.Exp(distance[policy])
		t.Logf("distance of %s %.3f", policy, distance[policy])
	}
	for _, policy := range policies[:3] {
		if distance["dfq"] > 0.95*distance[policy] {
			t.Errorf("dfq's distance is %.3f, that of %s %.3f", distance["dfq"], policy, distance[policy])
		}
	}
}

// TestNobodyIsHeldWithoutNeed: where the GPU has room for all, nobody is suspended,
// however different their needs.
func TestNobodyIsHeldWithoutNeed(t *testing.T) {
	for seed := range uint64(5) {
		p := program{kernel: 100 * us, batch: 1, think: 900 * us}
		if o := p.beside("dfq", 3, seed); o.held > 0 {
			t.Errorf("%d suspensions", o.held)
		}
	}
}

// TestNobodyIsHeldForOneAtItsCap, also not in the moment in which that may work again.
func TestNobodyIsHeldForOneAtItsCap(t *testing.T) {
	for _, capped := range []float64{0.01, 0.05, 0.2} {
		r := rand.New(rand.NewPCG(3, 1))
		guests := []*slicedGuest{saturating(r, 1, 1, 10*time.Second), saturating(r, 1, 1, ms)}
		guests[0].quota = fairshare.Quota{Cap: capped}
		s := newSlicedGPU(1, guests...)
		s.deep = 2 * ms
		s.shares(time.Second)
		parts, busy := s.shares(5 * time.Second)
		if guests[1].holds > 0 || math.Abs(parts[0]-capped) > 0.02 || busy < 0.97 {
			t.Errorf("cap %v: shares %.3f, the other was suspended %d times, the GPU executed %.3f of the time", capped, parts, guests[1].holds, busy)
		}
	}
}
