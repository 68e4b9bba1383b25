package sim

import (
	"time"

	"vgpud/accounting"
)

// ReadCost has the GPU's registers be read over a bus, on which each read takes d. The engine's status and the channel's
// entry are then read one after the other, so that they may be of different instants, and the GPU's time goes on as they
// are. While somebody polls, a command that is submitted waits for the end of the read that is under way: its doorbell
// is rung over the same bus. Zero, the default, is that reading takes no time. A Config.Tick of the accounting is to be
// two reads at least.
func (s *Sim) ReadCost(d time.Duration) { s.read = max(d, 0) }

// Polling implements accounting.Polled.
func (s *Sim) Polling(on bool) {
	if on {
		s.polledSince = s.m.Now()
	}
	s.polled = on
}

// Sample is what the registers show: the engine's status, and the entry of the channel that is on it (LoGA §4.1).
func (s *Sim) Sample() (accounting.Status, error) {
	s.pass(s.read)
	writes, onChan, channel := s.shown.Writes, s.shown.OnChan, s.shown.Channel
	st := accounting.StatusOf(s.shown.State)
	s.pass(s.read)
	s.torn = s.shown.Writes != writes
	st.Clock = s.m.Now()
	st.Entry = accounting.EntryIdle
	if onChan && int(channel) < len(s.shown.Entries) && s.shown.Entries[channel].Working() {
		st.Entry = accounting.EntryPending
	}
	return st, nil
}

// pass carries the clock on by d.
func (s *Sim) pass(d time.Duration) {
	if d > 0 {
		s.AdvanceTo(s.m.Now() + d)
	}
}

// SteadyUntil is before when a Sample must begin to see nothing new: it may yet see what happens as it is read. It is no
// time at all where something happened as the newest Sample was read, which may have seen only a part of that.
func (s *Sim) SteadyUntil() time.Duration {
	if s.torn {
		return s.m.Now()
	}
	t := s.m.Next()
	if len(s.coming) > 0 {
		t = min(t, s.coming[0].at)
	}
	return t - 2*s.read
}

// busBusy is for how long a doorbell waits for the bus that the registers are read over.
func (s *Sim) busBusy() time.Duration {
	if !s.polled || s.read == 0 {
		return 0
	}
	return (s.read - (s.m.Now()-s.polledSince)%s.read) % s.read
}
