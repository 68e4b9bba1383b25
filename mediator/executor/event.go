package executor

import (
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// event is a point in a channel's order of commands, with its time (a CUDA event).
type event struct {
	recorded bool
	reached  bool
	untimed  bool
	at       time.Duration // on the GPU's clock
	records  int           // how often it was recorded; only the last counts
}

// reach completes the recording of an event at an instant of the GPU's clock. An event that was
// recorded again meanwhile is reached by the newer recording.
func (p *pending) reach(at time.Duration) {
	p.com.Start, p.com.End, p.com.Value[0] = uint64(at), uint64(at), uint64(at)
	if p.event.records == p.record {
		p.event.reached, p.event.at = true, at
	}
}

func (c *command) event() (*event, error) {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return nil, err
	}
	return c.ch.x.events.get(h.Handle)
}

func eventCreate(c *command, p *pending) error {
	if _, err := abi.DecodeEmpty(c.entry); err != nil {
		return err
	}
	if c.h.Aux&^abi.EventNoTiming != 0 {
		return fmt.Errorf("event flags %#x: %w", c.h.Aux, abi.StatusInvalidValue)
	}
	var err error
	p.com.Value[0], err = c.ch.x.events.add(&event{untimed: c.h.Aux&abi.EventNoTiming != 0})
	return err
}

func eventDestroy(c *command, _ *pending) error {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	_, err = c.ch.x.events.take(h.Handle)
	return err
}

// eventRecord has the event reached with the newest command before it, or at once if nothing is on
// the GPU.
func eventRecord(c *command, p *pending) error {
	ev, err := c.event()
	if err != nil {
		return err
	}
	ev.records++
	ev.recorded, ev.reached = true, false
	p.event, p.record = ev, ev.records
	if c.ch.busyOnGPU() {
		p.fence = c.ch.newest()
		return nil
	}
	now, err := c.ch.x.o.Device.Now()
	if err != nil {
		return err
	}
	p.reach(now)
	return nil
}

// eventWaits reports whether a channel waits for the event's last recording. It does not wait for
// an event that was never recorded or does not exist.
func eventWaits(c *command) bool {
	ev, err := c.event()
	return err == nil && ev.recorded && !ev.reached && c.ch.x.poison == nil
}

// eventWait has only to have waited.
func eventWait(c *command, _ *pending) error {
	_, err := c.event()
	return err
}

func eventQuery(c *command, p *pending) error {
	ev, err := c.event()
	if err != nil {
		return err
	}
	switch {
	case !ev.recorded:
		p.com.Value[0] = abi.EventUnrecorded
	case !ev.reached:
		p.com.Value[0] = abi.EventPending
	default:
		p.com.Value[0], p.com.Value[1] = abi.EventReached, uint64(ev.at)
	}
	return nil
}

func eventElapsed(c *command, p *pending) error {
	e, err := abi.DecodeElapsed(c.entry)
	if err != nil {
		return err
	}
	from, err := c.ch.x.events.get(e.Start)
	if err != nil {
		return err
	}
	to, err := c.ch.x.events.get(e.End)
	if err != nil {
		return err
	}
	switch {
	case from.untimed || to.untimed || !from.recorded || !to.recorded:
		return abi.StatusInvalidHandle
	case !from.reached || !to.reached:
		return abi.StatusNotReady
	}
	p.com.Value[0] = uint64(to.at - from.at) // negative as two's complement
	return nil
}
