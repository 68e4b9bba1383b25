// Package accountingtest has GPUs for tests of accounting and of packages that build on it, in
// simulated time and with the truth known. [GPU] is an exclusive engine that serves its groups'
// kernels round-robin without preemption (LoGA §2.2). [Recorded] takes turns by time slices and
// records its context switches. [Sums] is a handler that adds up what samplers report.
package accountingtest

import (
	"math"
	"time"

	"vgpud/accounting"
)

// GPU is a simulated GPU with an exclusive engine. The zero value stands at its clock's epoch and
// has no groups. It implements [accounting.Simulation].
type GPU struct {
	// SwitchCost is how long the engine takes to change from one group to another.
	SwitchCost time.Duration

	now    time.Duration
	until  time.Duration // when the engine's present state ends
	state  accounting.SwitchState
	busy   bool
	owner  int // index of the group on the engine, where valid
	valid  bool
	next   int // index of the group being loaded
	groups []*Group

	idle, switching time.Duration
}

// Group is a channel group with a stream of kernels.
type Group struct {
	ID accounting.GroupID
	// Kernel draws the next kernel's length, and how long the program waits after the completion
	// that lets it submit that kernel.
	Kernel func() (length, think time.Duration)
	// Depth is how many launches the program keeps outstanding, at least 1. Ahead is how many the
	// host fetches from the ring to the hardware, at least 1.
	Depth, Ahead int

	held    bool
	fetched []time.Duration // lengths of the launches that the hardware has
	waiting []time.Duration // lengths of the launches in the ring
	coming  []launch        // launches to be submitted later, by time
	busy    time.Duration
	done    uint64
	sent    uint64
	lastIn  time.Duration
	since   time.Duration // start of what executes
}

type launch struct{ at, length time.Duration }

const never = time.Duration(math.MaxInt64)

// Add attaches a group at the present instant.
func (g *GPU) Add(group *Group) {
	group.Depth, group.Ahead = max(group.Depth, 1), max(group.Ahead, 1)
	for range group.Depth {
		length, think := group.Kernel()
		group.submit(launch{at: g.now + think, length: length})
	}
	g.groups = append(g.groups, group)
	g.settle()
}

// Remove detaches a group: what it has fetched runs, nothing else.
func (g *GPU) Remove(group *Group) {
	group.held = true
	group.waiting, group.coming = nil, nil
	group.Kernel = nil
}

// Hold stops fetching a group's launches, or resumes it.
func (g *GPU) Hold(group *Group, held bool) {
	group.held = held || group.Kernel == nil
	g.settle()
}

// Now returns the GPU's clock.
func (g *GPU) Now() time.Duration { return g.now }

// Idle returns how long nothing has executed.
func (g *GPU) Idle() time.Duration { return g.idle }

// Switching returns how long contexts were switched.
func (g *GPU) Switching() time.Duration { return g.switching }

// Busy returns how long the group has executed: the truth.
func (g *GPU) Busy(group *Group) time.Duration {
	if g.busy && g.groups[g.owner] == group {
		return group.busy + g.now - group.since
	}
	return group.busy
}

// Done returns the number of the group's completed kernels.
func (g *Group) Done() uint64 { return g.done }

// Sent returns the number of the group's submitted kernels, and the instant of the newest.
func (g *Group) Sent() (n uint64, newest time.Duration) { return g.sent, g.lastIn }

// Backlogged reports whether the group has work, waiting or executing.
func (g *Group) Backlogged() bool { return len(g.waiting)+len(g.fetched) > 0 }

// InFlight reports whether the hardware has a launch of the group.
func (g *Group) InFlight() bool { return len(g.fetched) > 0 }

// submit queues a launch that comes later.
func (g *Group) submit(l launch) {
	i := len(g.coming)
	for i > 0 && g.coming[i-1].at > l.at {
		i--
	}
	g.coming = append(g.coming, launch{})
	copy(g.coming[i+1:], g.coming[i:])
	g.coming[i] = l
}

// Sample implements [accounting.Source].
func (g *GPU) Sample() (accounting.Status, error) {
	st := accounting.Status{Clock: g.now, Valid: g.valid, Switch: g.state, Busy: g.busy}
	if g.valid {
		st.Group = g.groups[g.owner].ID
		st.Entry = accounting.EntryIdle
		if g.groups[g.owner].InFlight() {
			st.Entry = accounting.EntryPending
		}
	}
	if g.state != accounting.NoSwitch {
		st.Next = g.groups[g.next].ID
	}
	return st, nil
}

// SteadyUntil implements [accounting.Steady].
func (g *GPU) SteadyUntil() time.Duration {
	t := g.until
	for _, group := range g.groups {
		if len(group.coming) > 0 {
			t = min(t, group.coming[0].at)
		}
	}
	if t <= g.now {
		return never
	}
	return t
}

// AdvanceTo implements [accounting.Simulation].
func (g *GPU) AdvanceTo(t time.Duration) {
	for g.now < t {
		step := min(g.SteadyUntil(), t)
		d := step - g.now
		switch {
		case g.state != accounting.NoSwitch:
			g.switching += d
		case !g.busy:
			g.idle += d
		}
		g.now = step
		g.settle()
	}
}

// settle carries out what is due now.
func (g *GPU) settle() {
	for _, group := range g.groups {
		for len(group.coming) > 0 && group.coming[0].at <= g.now {
			group.waiting = append(group.waiting, group.coming[0].length)
			group.sent++
			group.lastIn = group.coming[0].at
			group.coming = group.coming[1:]
		}
	}
	if g.until <= g.now {
		g.finish()
	}
	for _, group := range g.groups {
		for !group.held && len(group.waiting) > 0 && len(group.fetched) < group.Ahead {
			group.fetched = append(group.fetched, group.waiting[0])
			group.waiting = group.waiting[1:]
		}
	}
	if !g.busy && g.state == accounting.NoSwitch {
		g.dispatch()
	}
}

// finish ends the state that has lasted its time.
func (g *GPU) finish() {
	switch {
	case g.state != accounting.NoSwitch:
		g.state = accounting.NoSwitch
		g.owner, g.valid = g.next, true
		g.execute()
	case g.busy:
		group := g.groups[g.owner]
		g.busy = false
		group.busy += g.now - group.since
		group.done++
		group.fetched = group.fetched[1:]
		if group.Kernel != nil {
			length, think := group.Kernel()
			if think == 0 {
				group.waiting = append(group.waiting, length)
				group.sent++
				group.lastIn = g.now
			} else {
				group.submit(launch{at: g.now + think, length: length})
			}
		}
	}
}

// dispatch gives the engine to the next group that has work.
func (g *GPU) dispatch() {
	for i := range g.groups {
		i = (g.owner + 1 + i) % len(g.groups)
		if !g.groups[i].InFlight() {
			continue
		}
		if (!g.valid || g.owner != i) && g.SwitchCost > 0 {
			g.next = i
			g.state = accounting.Loading
			if g.valid {
				g.state = accounting.Switching
			}
			g.until = g.now + g.SwitchCost
			return
		}
		g.owner, g.valid = i, true
		g.execute()
		return
	}
	g.until = never
}

// execute starts the owner's oldest launch.
func (g *GPU) execute() {
	group := g.groups[g.owner]
	g.busy = true
	group.since = g.now
	g.until = g.now + group.fetched[0]
}
