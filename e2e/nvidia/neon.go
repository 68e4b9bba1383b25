package main

import (
	"context"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/e2e/nvidia/tenant"
)

// neonConfig is NEON as LoGA §5.1 configured it: 1 ms of sampling and 5 ms of free
// run for each channel, of which our guests have two, their own and the context's.
var neonConfig = accounting.NeonConfig{Alone: 2 * time.Millisecond, FreeRun: 10 * time.Millisecond}

// neonGate is the tenants' gates as NEON has them.
type neonGate struct {
	gates  *tenant.Gates
	owners []accounting.Owner
}

// Owners implements [accounting.Gate].
func (g *neonGate) Owners() []accounting.Owner { return g.owners }

// Admit implements [accounting.Gate].
func (g *neonGate) Admit(owners []accounting.Owner) {
	admitted := make(map[accounting.Owner]bool)
	for _, o := range owners {
		admitted[o] = true
	}
	for _, o := range g.owners {
		g.gates.At(int(o)).Hold(!admitted[o])
	}
}

// Drained implements [accounting.Gate].
func (g *neonGate) Drained() bool {
	for _, o := range g.owners {
		if submitted, completed, _ := g.gates.At(int(o)).Progress(); submitted > completed {
			return false
		}
	}
	return true
}

// Progress implements [accounting.Gate].
func (g *neonGate) Progress(o accounting.Owner) accounting.Progress {
	submitted, completed, last := g.gates.At(int(o)).Progress()
	return accounting.Progress{Submitted: submitted, Completed: completed, LastSubmit: last}
}

// startNeon has NEON account for the first n tenants, and schedule them too where
// that is asked for, until stop is called.
func startNeon(ctx context.Context, gates *tenant.Gates, n int, schedule bool) (stop func()) {
	gate := &neonGate{gates: gates}
	for i := range n {
		gate.owners = append(gate.owners, accounting.Owner(i))
	}
	var allow func([]accounting.NeonOwner) []accounting.Owner
	if schedule {
		allow = newNeonQueue(n).allow
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer gate.Admit(gate.owners)
		neon := accounting.NewNeon(neonConfig, gate, allow)
		for {
			now := tenant.Monotonic()
			next, _ := neon.Step(now)
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

// neonQueue is NEON's disengaged fair queueing: who is ahead of the one with the
// least virtual time by more than a free run sits the next one out.
type neonQueue struct{ virtual []time.Duration }

func newNeonQueue(n int) *neonQueue { return &neonQueue{make([]time.Duration, n)} }

func (q *neonQueue) allow(sampled []accounting.NeonOwner) (allowed []accounting.Owner) {
	system, found := time.Duration(0), false
	for _, o := range sampled {
		q.virtual[o.Owner] += o.Charged
		if o.Commands > 0 && (!found || q.virtual[o.Owner] < system) {
			system, found = q.virtual[o.Owner], true
		}
	}
	threshold := neonConfig.FreeRun * time.Duration(len(sampled))
	for _, o := range sampled {
		q.virtual[o.Owner] = max(q.virtual[o.Owner], system)
		if q.virtual[o.Owner]-system <= threshold {
			allowed = append(allowed, o.Owner)
		}
	}
	return allowed
}
