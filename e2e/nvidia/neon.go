package main

import (
	"context"
	"slices"
	"time"

	"vgpud/clock"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/papers/neon"
)

// neonConfig is for the two channels of each of our guests, its own and the context's.
var neonConfig = neon.PerChannels(2)

// neonRounds is how many rounds of NEON, but for the draining in them, a program's window has. In
// one of a round or two its turnaround says where in a round that began.
const neonRounds = 6

// withNeon reports whether a program is measured under NEON, whose windows are long: only some are.
func (c *crowd) withNeon(a *app) bool { return c.tiny || slices.Contains(likePapers, a.name) }

// neonWindow is a program's window under NEON beside others of these guests.
func (b *bench) neonWindow(guests int) time.Duration {
	all := neonRounds * neonConfig.RoundLength(guests)
	return pick(b, 20*time.Millisecond, all, all)
}

// neonGate is the tenants' gates as NEON has them.
type neonGate struct {
	gates  *tenant.Gates
	owners []neon.Owner
}

// Owners implements [neon.Gate].
func (g *neonGate) Owners() []neon.Owner { return g.owners }

// Admit implements [neon.Gate].
func (g *neonGate) Admit(owners []neon.Owner) {
	admitted := make(map[neon.Owner]bool)
	for _, o := range owners {
		admitted[o] = true
	}
	for _, o := range g.owners {
		g.gates.At(int(o)).Hold(!admitted[o])
	}
}

// Drained implements [neon.Gate].
func (g *neonGate) Drained() bool {
	for _, o := range g.owners {
		if submitted, completed, _ := g.gates.At(int(o)).Progress(); submitted > completed {
			return false
		}
	}
	return true
}

// Progress implements [neon.Gate].
func (g *neonGate) Progress(o neon.Owner) neon.Progress {
	submitted, completed, last := g.gates.At(int(o)).Progress()
	return neon.Progress{Submitted: submitted, Completed: completed, LastSubmit: last}
}

// startNeon has NEON account for the first n tenants, and schedule them too where that is asked
// for, until stop is called.
func startNeon(ctx context.Context, gates *tenant.Gates, n int, schedule bool) (stop func()) {
	gate := &neonGate{gates: gates}
	for i := range n {
		gate.owners = append(gate.owners, neon.Owner(i))
	}
	var allow func([]neon.Sample) []neon.Owner
	if schedule {
		allow = neon.NewQueue(neonConfig, n).Allow
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer gate.Admit(gate.owners)
		sampling := neon.NewSampling(neonConfig, gate, allow)
		for {
			now := tenant.Monotonic()
			next, _ := sampling.Step(now) // what a round came to is not asked for: NEON only holds back
			if clock.Sleep(ctx, clock.Real{}, next-now) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
