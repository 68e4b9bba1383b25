package neon

import (
	"slices"

	"vgpud/gpu/soft/sim"
)

// Owner is one accounted party, a guest, as a [Gate] numbers them.
type Owner uint32

// Gate lets guests' commands through to the GPU or holds them back. Sampling needs it.
type Gate interface {
	// Owners returns those that have channels now. The result is valid until the next call.
	Owners() []Owner
	// Admit lets exactly the given owners' commands be fetched and holds all others'. Commands that
	// were fetched run to their end.
	Admit(owners []Owner)
	// Drained reports whether all commands that were fetched have ended.
	Drained() bool
	// Progress returns what o has seen of the GPU since it was attached.
	Progress(o Owner) Progress
}

// Progress is how far an owner's commands are. Its LastSubmit is on the clock that the sampling
// runs on: NEON traps submissions while it samples, so it knows.
type Progress = sim.Progress

// simGate is a gate to a simulation. An owner is a guest's index.
type simGate struct {
	s      *sim.Sim
	owners []Owner
}

// SimGate returns a gate to a simulation's guests, numbered in the order of s.Guests.
func SimGate(s *sim.Sim) Gate { return &simGate{s: s} }

// Owners implements [Gate].
func (g *simGate) Owners() []Owner {
	g.owners = g.owners[:0]
	for i := range g.s.Guests() {
		g.owners = append(g.owners, Owner(i))
	}
	return g.owners
}

// Admit implements [Gate].
func (g *simGate) Admit(owners []Owner) {
	for i, guest := range g.s.Guests() {
		guest.SetSuspended(!slices.Contains(owners, Owner(i)))
	}
}

// Drained implements [Gate].
func (g *simGate) Drained() bool {
	return !slices.ContainsFunc(g.s.Guests(), (*sim.Guest).InFlight)
}

// Progress implements [Gate].
func (g *simGate) Progress(o Owner) Progress { return g.s.Guests()[o].Progress() }
