package accounting

import (
	"time"
)

// NeonConfig configures [Neon]. The zero value of each field stands for the
// default named there.
type NeonConfig struct {
	// Alone is how long each owner runs by itself in a sampling phase: 5 ms.
	Alone time.Duration
	// FreeRun is how long all run together after it, for each owner: five times
	// Alone, LoGA §5.1's ratio.
	FreeRun time.Duration
	// Poll is the time between two looks at the completions: 1 ms (LoGA §2.3).
	Poll time.Duration
	// DrainAtMost ends a draining phase in which a command doesn't end: 100 ms.
	DrainAtMost time.Duration
}

// Neon is NEON's accounting (LoGA §2.3), the baseline. Each round it suspends
// all owners and waits until what was fetched has ended (draining), lets each
// owner run alone for a while as it polls for completions, and then lets those
// that the policy allows run freely. The mean command length that it saw of an
// owner alone decides what part of the free run the owner is charged.
//
// It is a state machine without a clock: Step is called at the instants it asks
// for.
type Neon struct {
	config NeonConfig
	gate   Gate
	allow  func(sampled []NeonOwner) []Owner

	state   neonState
	begun   time.Duration // of the state
	owners  []NeonOwner
	current int  // owner that runs alone
	ending  bool // its time is over, but not its commands
	seen    Progress
	busyAt  time.Duration // when the current owner's oldest unfinished command began, as far as NEON can tell
	busy    bool
	free    []Owner
	round   NeonRound
}

// NeonRound is what one round of NEON's sampling came to.
type NeonRound struct {
	// FreeRun, Drain and Alone are the lengths of its three parts, in that order.
	// The first round has no free run.
	FreeRun, Drain, Alone time.Duration
	// Owners are those sampled, in the gate's order.
	Owners []NeonOwner
}

// NeonOwner is what NEON found out about one owner.
type NeonOwner struct {
	Owner Owner
	// Commands is how many were seen to complete as the owner ran alone, and
	// Busy the time that they took, as far as polling for completions tells.
	Commands uint64
	Busy     time.Duration
	// Charged is what the owner is charged for the round: its part of the free
	// run before, in proportion of the mean command lengths of those that were
	// let run in it, and Busy.
	Charged time.Duration
}

// Mean is the mean command length; zero where no command was seen.
func (o *NeonOwner) Mean() time.Duration {
	if o.Commands == 0 {
		return 0
	}
	return o.Busy / time.Duration(o.Commands)
}

type neonState uint8

const (
	neonFree neonState = iota
	neonDraining
	neonAlone
)

// NewNeon returns NEON's accounting over a gate, in its free run. allow says who
// may run in the next free run, once all owners have been sampled; nil lets all.
func NewNeon(c NeonConfig, gate Gate, allow func([]NeonOwner) []Owner) *Neon {
	setDefault(&c.Alone, 5*time.Millisecond)
	setDefault(&c.FreeRun, 5*c.Alone)
	setDefault(&c.Poll, time.Millisecond)
	setDefault(&c.DrainAtMost, 100*time.Millisecond)
	return &Neon{config: c, gate: gate, allow: allow}
}

// Step goes on at time now, and says when it wants to be called next. Where a
// sampling phase has just ended, round is what it and the free run before it
// came to, valid until the next call; otherwise it is nil.
func (n *Neon) Step(now time.Duration) (next time.Duration, round *NeonRound) {
	switch n.state {
	case neonFree:
		if n.free != nil {
			if until := n.begun + n.freeRun(); now < until {
				return until, nil
			}
			n.round.FreeRun = now - n.begun
		}
		n.state, n.begun = neonDraining, now
		n.gate.Admit(nil)
	case neonDraining:
		if n.gate.Drained() || now-n.begun >= n.config.DrainAtMost {
			n.round.Drain, n.round.Alone = now-n.begun, 0
			n.owners = n.owners[:0]
			for _, o := range n.gate.Owners() {
				n.owners = append(n.owners, NeonOwner{Owner: o})
			}
			n.current = -1
			round = n.nextAlone(now)
		}
	case neonAlone:
		n.look(now)
		switch lasted := now - n.begun; {
		case lasted < n.config.Alone:
		case n.gate.Drained() || lasted >= n.config.Alone+n.config.DrainAtMost:
			n.round.Alone += lasted
			round = n.nextAlone(now)
		case !n.ending:
			n.ending = true // what it has submitted must not run beside the next owner's
			n.gate.Admit(nil)
		}
	}
	return n.wake(now), round
}

// wake is when to look again.
func (n *Neon) wake(now time.Duration) time.Duration {
	if n.state == neonFree {
		return n.begun + n.freeRun()
	}
	return now + n.config.Poll
}

// freeRun grows with the number of owners, as the sampling phase does.
func (n *Neon) freeRun() time.Duration {
	return n.config.FreeRun * time.Duration(max(len(n.owners), 1))
}

// nextAlone lets the next owner run by itself. After the last it ends the
// sampling phase, and lets all run that may.
func (n *Neon) nextAlone(now time.Duration) *NeonRound {
	n.current++
	if n.current < len(n.owners) {
		n.state, n.begun, n.ending = neonAlone, now, false
		o := n.owners[n.current].Owner
		n.seen = n.gate.Progress(o)
		n.busy = n.seen.Submitted > n.seen.Completed
		n.busyAt = now
		n.gate.Admit([]Owner{o})
		return nil
	}
	n.charge()
	n.free = n.free[:0]
	if n.allow != nil {
		n.free = append(n.free, n.allow(n.owners)...)
	} else {
		for i := range n.owners {
			n.free = append(n.free, n.owners[i].Owner)
		}
	}
	if n.free == nil {
		n.free = []Owner{} // nil says that nobody was sampled yet
	}
	n.state, n.begun = neonFree, now
	n.gate.Admit(n.free)
	return &n.round
}

// look takes in the completions since it last looked. A command began when it
// was submitted, or when the one before it was seen to complete: NEON traps
// submissions as it samples, but learns of completions only when it polls.
func (n *Neon) look(now time.Duration) {
	o := &n.owners[n.current]
	p := n.gate.Progress(o.Owner)
	if !n.busy && p.Submitted > n.seen.Submitted {
		n.busy, n.busyAt = true, max(p.LastSubmit, n.busyAt)
	}
	if completed := p.Completed - n.seen.Completed; completed > 0 {
		o.Commands += completed
		o.Busy += now - n.busyAt
		n.busyAt = now
		n.busy = p.Submitted > p.Completed
	}
	n.seen = p
}

// charge shares the free run before the sampling phase out among those that were
// let run in it.
func (n *Neon) charge() {
	var total time.Duration
	for i := range n.owners {
		if n.ran(n.owners[i].Owner) {
			total += n.owners[i].Mean()
		}
	}
	n.round.Owners = n.owners
	for i := range n.owners {
		o := &n.owners[i]
		o.Charged = o.Busy
		if total > 0 && n.ran(o.Owner) {
			o.Charged += time.Duration(float64(n.round.FreeRun) * float64(o.Mean()) / float64(total))
		}
	}
}

// ran is whether o was let run freely.
func (n *Neon) ran(o Owner) bool {
	for _, f := range n.free {
		if f == o {
			return true
		}
	}
	return false
}
