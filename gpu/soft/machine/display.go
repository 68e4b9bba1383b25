package machine

import (
	"time"

	"vgpud/accounting/nvreg"
)

// Registers receives the machine's state. The machine writes changes in order of time.
type Registers interface {
	// Engine sets the engine's status and the channel on it. shown is false if no channel is on it.
	Engine(at time.Duration, s nvreg.EngineState, channel uint32, shown bool)
	// Entry sets a channel's entry.
	Entry(at time.Duration, channel uint32, e nvreg.ChannelEntry)
}

// display writes registers, each kind with its lag.
type display struct {
	to                 Registers
	engineLag, hostLag time.Duration
	last               engineShown
	engines            fifo[engineWrite]
	entries            fifo[entryWrite]
}

type engineShown struct {
	state   nvreg.EngineState
	channel uint32
	shown   bool
}

type engineWrite struct {
	at time.Duration
	engineShown
}

type entryWrite struct {
	at time.Duration
	id uint32
	e  nvreg.ChannelEntry
}

func (d *display) init(to Registers, engineLag, hostLag time.Duration) {
	d.to, d.engineLag, d.hostLag = to, engineLag, hostLag
}

// next returns when the next lagging register changes.
func (d *display) next() time.Duration {
	t := Never
	if d.engines.len() > 0 {
		t = d.engines.peek().at
	}
	if d.entries.len() > 0 {
		t = min(t, d.entries.peek().at)
	}
	return t
}

// flush writes the changes that are due.
func (d *display) flush(now time.Duration) {
	for d.engines.len() > 0 && d.engines.peek().at <= now {
		w := d.engines.pop()
		d.to.Engine(w.at, w.state, w.channel, w.shown)
	}
	for d.entries.len() > 0 && d.entries.peek().at <= now {
		w := d.entries.pop()
		d.to.Entry(w.at, w.id, w.e)
	}
}

func (d *display) engine(now time.Duration, s engineShown) {
	if d.to == nil || s == d.last {
		return
	}
	d.last = s
	if d.engineLag == 0 {
		d.to.Engine(now, s.state, s.channel, s.shown)
		return
	}
	d.engines.push(engineWrite{now + d.engineLag, s})
}

func (d *display) entry(now time.Duration, id uint32, e nvreg.ChannelEntry) {
	if d.to == nil {
		return
	}
	if d.hostLag == 0 {
		d.to.Entry(now, id, e)
		return
	}
	d.entries.push(entryWrite{now + d.hostLag, id, e})
}

// showEngine writes the engine's current status.
func (m *Machine) showEngine() {
	var s engineShown
	switch {
	case m.switching.to != nil:
		s.state = nvreg.EngineState{Context: nvreg.ContextLoad, NextTSGID: m.switching.to.id, Busy: true}
		if m.switching.from != nil {
			s.state.TSGID = m.switching.from.id
		}
		if !m.switching.loading {
			s.state.Context = nvreg.ContextSave
		}
	case m.resident != nil:
		s.state = nvreg.EngineState{Context: nvreg.ContextValid, TSGID: m.resident.id}
		if !m.on.empty() {
			s.state.Busy = true
			s.channel, s.shown = m.on.launches[0].channel.id, true
		} else if l := m.co.oldest(m.resident); l != nil {
			s.state.Busy = true
			s.channel, s.shown = l.channel.id, true
		}
	}
	m.show.engine(m.now, s)
}

// showEntry writes a channel's current entry.
func (m *Machine) showEntry(c *Channel) {
	if m.channels[c.id] != c {
		return // freed
	}
	e := nvreg.ChannelEnable
	if c.group.disabled {
		e = 0
	}
	waiting := len(c.queue)
	if c.on {
		waiting--
		e |= nvreg.ChannelOnPBDMA | nvreg.ChannelOnEng | nvreg.ChannelPBDMABusy | nvreg.ChannelEngBusy
	}
	if waiting > 0 {
		e |= nvreg.ChannelPending
	}
	if len(c.queue) > 0 {
		e |= nvreg.ChannelBusy
	}
	if c.shown == uint32(e) {
		return
	}
	c.shown = uint32(e)
	m.show.entry(m.now, c.id, e)
}

// Shown is a [Registers] in memory: what a reader of the register file would see.
type Shown struct {
	State   nvreg.EngineState
	Channel uint32
	OnChan  bool
	// Entries are the channels' entries by number. It grows as needed.
	Entries []nvreg.ChannelEntry
	// Writes counts the changes.
	Writes uint64
}

// Engine implements [Registers].
func (s *Shown) Engine(_ time.Duration, st nvreg.EngineState, channel uint32, shown bool) {
	s.State, s.Channel, s.OnChan = st, channel, shown
	s.Writes++
}

// Entry implements [Registers].
func (s *Shown) Entry(_ time.Duration, channel uint32, e nvreg.ChannelEntry) {
	for int(channel) >= len(s.Entries) {
		s.Entries = append(s.Entries, 0)
	}
	s.Entries[channel] = e
	s.Writes++
}
