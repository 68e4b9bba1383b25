package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vgpud/e2e/mischief"
)

// action is something that the soak does to a guest.
type action int

const (
	reweighed    action = iota // its weight changes while it works
	suspended                  // a cap suspends it while it works
	left                       // it ends, and another guest replaces it
	guestKilled                // kill -9 of its process, which stands for a VMM, while it works
	deviceKilled               // kill -9 of its virtual GPU's process while it works
	executorKilled
	strayed // its kernel stores to an invalid address
	stuck   // its kernel never ends
)

var actionNames = map[action]string{
	reweighed: "weight changed", suspended: "capped and suspended", left: "went, and another came",
	guestKilled: "kill -9 of the guest", deviceKilled: "kill -9 of its virtual GPU's process", executorKilled: "kill -9 of its executor",
	strayed: "a store at a bad address", stuck: "a kernel that never ends",
}

func (d action) String() string { return actionNames[d] }

// event is an action at a time of the soak.
type event struct {
	at     time.Duration
	do     action
	weight float64       // the guest's weight from then on, if it is new or reweighed
	lasts  time.Duration // the time until the kill, or the duration of the cap
}

// urgentPeriod is an interval in which the policy is hpf.
type urgentPeriod struct{ from, to time.Duration }

// plan is everything that happens in a soak.
type plan struct {
	guests        [][]event // by seat
	urgentPeriods []urgentPeriod
	// modes are the ways in which the hostile guest misbehaves, in order and repeated from the
	// first; spells is how long each lasts.
	modes  []string
	spells []time.Duration
}

// These are the times of a plan for a soak of several minutes. A shorter soak shortens them.
const (
	usualPause       = 4 * time.Second // between a guest's events
	leastBetween     = 300 * time.Millisecond
	usualUrgentCycle = 24 * time.Second // from one start of hpf to the next
	leastUrgentCycle = 1500 * time.Millisecond
	pausesEach       = 100 // how many pauses a short soak has for each guest
)

// planned returns a plan of the given length. may has one entry for each guest except the hostile
// one: the actions that the plan may choose for it. The plan depends on the arguments only.
func planned(seed uint64, long time.Duration, may [][]action) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	pause := min(max(long/pausesEach, leastBetween), usualPause)
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(rng.Int64N(int64(b-a))) }
	var p plan
	for _, actions := range may {
		var events []event
		var deck []action
		for at := between(pause/2, pause*3/2); at < long-pause; at += between(pause/2, pause*3/2) {
			if len(deck) == 0 { // so that each action is equally frequent
				deck = slices.Clone(actions)
				rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			events = append(events, event{at: at, do: deck[0], weight: shareWeights[rng.IntN(len(shareWeights))], lasts: between(pause/8, pause/2)})
			deck = deck[1:]
		}
		p.guests = append(p.guests, events)
	}
	cycle := min(max(long/20, leastUrgentCycle), usualUrgentCycle)
	for at := time.Duration(0); at+cycle <= long; at += cycle {
		from := at + between(cycle/4, cycle/2)
		p.urgentPeriods = append(p.urgentPeriods, urgentPeriod{from, from + cycle/4})
	}
	p.modes = mischief.Modes()
	rng.Shuffle(len(p.modes), func(i, j int) { p.modes[i], p.modes[j] = p.modes[j], p.modes[i] })
	for range p.modes {
		p.spells = append(p.spells, between(pause/4, pause))
	}
	return p
}

// String returns the counts of the plan's events.
func (p *plan) String() string {
	n, of := 0, make(map[action]int)
	for _, events := range p.guests {
		for _, e := range events {
			n++
			of[e.do]++
		}
	}
	s := fmt.Sprintf("%d events", n)
	for d := range action(len(actionNames)) {
		s += fmt.Sprintf(", %d × %v", of[d], d)
	}
	return s + fmt.Sprintf(", %d times hpf", len(p.urgentPeriods))
}
