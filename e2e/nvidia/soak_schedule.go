package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vgpud/e2e/mischief"
)

// deed is what happens to a guest of the soak.
type deed int

const (
	reweighed    deed = iota // its weight changes while it works
	suspended                // a cap holds it while it works
	left                     // it goes, and another comes
	guestKilled              // kill -9 of its process, which a VMM is, while it works
	deviceKilled             // kill -9 of the process of its virtual GPU while it works
	executorKilled
	strayed // its kernel stores at a bad address
	stuck   // its kernel never ends
)

var deedNames = map[deed]string{
	reweighed: "weight changed", suspended: "capped and suspended", left: "went, and another came",
	guestKilled: "kill -9 of the guest", deviceKilled: "kill -9 of its virtual GPU's process", executorKilled: "kill -9 of its executor",
	strayed: "a store at a bad address", stuck: "a kernel that never ends",
}

func (d deed) String() string { return deedNames[d] }

// event is a deed at a time of the soak.
type event struct {
	at     time.Duration
	do     deed
	weight float64       // the guest's from then on, where it is new or reweighed
	lasts  time.Duration // until it is killed, or of the cap
}

// hurry is a time in which the policy is hpf.
type hurry struct{ from, to time.Duration }

// plan is everything that happens in a soak.
type plan struct {
	guests  [][]event // by seat
	hurries []hurry
	// modes are the ways in which the hostile guest misbehaves, one after the other and
	// again from the first, and spells for how long each.
	modes  []string
	spells []time.Duration
}

// Times of a plan, for a soak of some minutes; a short one has them shorter.
const (
	usualPause   = 4 * time.Second // between a guest's events
	leastBetween = 300 * time.Millisecond
	usualHurry   = 24 * time.Second // from one hpf to the next
	leastHurry   = 1500 * time.Millisecond
	pausesEach   = 100 // that a guest should have, where it has not the usual ones
)

// planned is a plan for so long, and for as many guests beside the hostile one as may is
// long: what may happen to each. It depends on nothing but its arguments.
func planned(seed uint64, long time.Duration, may [][]deed) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	pause := min(max(long/pausesEach, leastBetween), usualPause)
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(rng.Int64N(int64(b-a))) }
	var p plan
	for _, deeds := range may {
		var events []event
		var deck []deed
		for at := between(pause/2, pause*3/2); at < long-pause; at += between(pause/2, pause*3/2) {
			if len(deck) == 0 { // so that each comes as often as any other
				deck = slices.Clone(deeds)
				rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			events = append(events, event{at: at, do: deck[0], weight: shareWeights[rng.IntN(len(shareWeights))], lasts: between(pause/8, pause/2)})
			deck = deck[1:]
		}
		p.guests = append(p.guests, events)
	}
	cycle := min(max(long/20, leastHurry), usualHurry)
	for at := time.Duration(0); at+cycle <= long; at += cycle {
		from := at + between(cycle/4, cycle/2)
		p.hurries = append(p.hurries, hurry{from, from + cycle/4})
	}
	p.modes = mischief.Modes()
	rng.Shuffle(len(p.modes), func(i, j int) { p.modes[i], p.modes[j] = p.modes[j], p.modes[i] })
	for range p.modes {
		p.spells = append(p.spells, between(pause/4, pause))
	}
	return p
}

// String is the plan by counts.
func (p *plan) String() string {
	n, of := 0, make(map[deed]int)
	for _, events := range p.guests {
		for _, e := range events {
			n++
			of[e.do]++
		}
	}
	s := fmt.Sprintf("%d events", n)
	for d := range deed(len(deedNames)) {
		s += fmt.Sprintf(", %d × %v", of[d], d)
	}
	return s + fmt.Sprintf(", %d times hpf", len(p.hurries))
}
