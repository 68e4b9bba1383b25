package accounting

import "time"

// Simulation is a GPU in simulated time.
type Simulation interface {
	Steady
	// Now returns the GPU's clock.
	Now() time.Duration
	// AdvanceTo carries the GPU's clock to t.
	AdvanceTo(t time.Duration)
}

// PolledSimulation is a [Simulation] in which reading registers costs the GPU time. It is told when
// it is polled, since the ticks that a [SimulatedSampler] skips would cost nothing otherwise.
type PolledSimulation interface {
	Simulation
	// Polling reports whether the GPU is polled at every tick from now on.
	Polling(on bool)
}

// SimulatedSampler is a [Sampler] in simulated time. It has the same rounds and the same handler,
// which it calls at once. The result is that of a poll every Config.Tick, but ticks at which the
// status can't have changed are skipped.
type SimulatedSampler struct {
	state *sampling
	host  simulatedHost
}

// NewSimulatedSampler returns a sampler of sim that asks h for its plans.
func NewSimulatedSampler(sim Simulation, h Handler, c Config) (*SimulatedSampler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	s := &SimulatedSampler{
		state: newSampling(SampledGPU{Name: "simulated", Source: sim, Handler: h, Config: c}),
		host:  simulatedHost{sim: sim, tick: c.Tick},
	}
	s.state.due = sim.Now()
	s.host.polled, _ = sim.(PolledSimulation)
	return s, nil
}

// RunUntil carries the simulation to t, in whole pieces of polling: the last one may end later.
func (s *SimulatedSampler) RunUntil(t time.Duration) error {
	for {
		s.state.expedite(s.host.now())
		if s.state.due >= t {
			break
		}
		s.host.sim.AdvanceTo(s.state.due)
		if err := s.state.visit(&s.host); err != nil {
			return err
		}
	}
	s.host.sim.AdvanceTo(t)
	return nil
}

// Notify says that a channel came or went; see [Sampler.Notify]. The round ends early at the end of
// a piece.
func (s *SimulatedSampler) Notify(int) { s.state.notified.Store(true) }

// simulatedHost polls a simulation.
type simulatedHost struct {
	sim    Simulation
	polled PolledSimulation // sim, if it wants to know
	tick   time.Duration
}

func (h *simulatedHost) now() time.Duration      { return h.sim.Now() }
func (h *simulatedHost) stopped() bool           { return false }
func (h *simulatedHost) spentCPU() time.Duration { return 0 }

// poll implements host.
func (h *simulatedHost) poll(s *sampling, until time.Duration, done func(time.Duration) bool) error {
	start := h.now()
	if start >= until || done(start) {
		return nil
	}
	if h.polled != nil {
		h.polled.Polling(true)
		defer h.polled.Polling(false)
	}
	for now := start; ; {
		next := h.nextTick(start, now, until)
		if skipped := (next - now - 1) / h.tick; skipped > 0 {
			s.meter.Unchanged(uint64(skipped))
		}
		h.sim.AdvanceTo(next)
		if next >= until {
			return nil
		}
		st, err := s.sample()
		if err != nil {
			return err
		}
		s.meter.Observe(st)
		if now = next; done(now) {
			return nil
		}
	}
}

// nextTick returns the first poll after now that can see something new, or end. The GPU's state at
// start may not have been seen: a piece of polling that ended there did not read the status then.
func (h *simulatedHost) nextTick(start, now, end time.Duration) time.Duration {
	next := now + h.tick
	if now == start {
		return min(next, end)
	}
	steady := h.sim.SteadyUntil()
	if steady >= end {
		return end
	}
	if steady > next {
		ticks := (steady - start + h.tick - 1) / h.tick
		next = start + ticks*h.tick
	}
	return min(next, end)
}
