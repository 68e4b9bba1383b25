package sim

import (
	"time"

	"vgpud/accounting"
)

// ReadCost makes each read of a register take d, as over a bus. The engine's status and the
// channel's entry are then read one after the other, so that they may be of different instants, and
// the GPU's time advances during the reads. While a poller is active, a submitted command waits for
// the end of the current read, because its doorbell is rung over the same bus. The default is 0.
// The accounting's Config.Tick must be at least two reads.
func (s *Sim) ReadCost(d time.Duration) { s.read = max(d, 0) }

// Polling implements accounting.PolledSimulation.
func (s *Sim) Polling(on bool) {
	if on {
		s.polledSince = s.m.Now()
	}
	s.polled = on
}

// Sample returns what the registers show: the engine's status, and the entry of the channel on it
// (LoGA §4.1).
func (s *Sim) Sample() (accounting.Status, error) {
	s.pass(s.read)
	writes, onChan, channel := s.shown.Writes, s.shown.OnChan, s.shown.Channel
	st := accounting.StatusOf(s.shown.State)
	s.pass(s.read)
	s.changed = s.shown.Writes != writes
	st.Clock = s.m.Now()
	st.Entry = accounting.EntryIdle
	if onChan && int(channel) < len(s.shown.Entries) && s.shown.Entries[channel].Working() {
		st.Entry = accounting.EntryPending
	}
	return st, nil
}

// pass advances the clock by d.
func (s *Sim) pass(d time.Duration) {
	if d > 0 {
		s.AdvanceTo(s.m.Now() + d)
	}
}

// SteadyUntil returns a time before which no Sample can begin that sees anything new: the reads of
// such a Sample end before the next change. It returns Now if something changed during the newest
// Sample, which may have seen only a part of the change.
func (s *Sim) SteadyUntil() time.Duration {
	if s.changed {
		return s.m.Now()
	}
	t := s.m.Next()
	if len(s.coming) > 0 {
		t = min(t, s.coming[0].at)
	}
	return t - 2*s.read
}

// busBusy returns how long a doorbell waits for the bus.
func (s *Sim) busBusy() time.Duration {
	if !s.polled || s.read == 0 {
		return 0
	}
	return (s.read - (s.m.Now()-s.polledSince)%s.read) % s.read
}
