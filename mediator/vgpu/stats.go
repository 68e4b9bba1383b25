package vgpu

import "vgpud/mediator/vgpu/abi"

// Stats holds a device's counters since its creation and its current state.
type Stats struct {
	Reads, Writes  uint64 // accesses to BAR0
	BadAccesses    uint64 // of a size or alignment that the device does not answer
	Refused        uint64 // writes that set an error
	Doorbells      uint64 // passed on to the backend
	StrayDoorbells uint64 // of channels that are not open
	Resets         uint64
	Signals        uint64 // state interrupts raised

	Contexts []ContextStats // those that are not free
	Channels int            // those that are not free
	Attached bool
}

// ContextStats is the state of one context.
type ContextStats struct {
	ContextRef
	State    abi.ContextState
	Error    abi.ErrorCode
	Tag      uint32
	Channels int
}

// Stats returns the counters and the context table.
func (d *Device) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &d.regs.count
	s := Stats{
		Reads: n.reads, Writes: n.writes, BadAccesses: n.badAccesses, Refused: n.refused,
		Doorbells: n.doorbells, StrayDoorbells: n.strayDoorbells, Resets: n.resets,
		Signals: d.signals, Attached: d.session != nil,
	}
	for i := range d.regs.contexts {
		c := &d.regs.contexts[i]
		if c.state == abi.ContextFree {
			continue
		}
		s.Contexts = append(s.Contexts, ContextStats{
			ContextRef: d.regs.contextRef(i), State: c.state, Error: c.err, Tag: c.tag, Channels: int(c.channels),
		})
	}
	for i := range d.regs.channels {
		if d.regs.channels[i].state != abi.ChannelFree {
			s.Channels++
		}
	}
	return s
}
