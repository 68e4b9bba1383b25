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
	// triggered is set for an event that the guest triggers instead of recording it. value is the
	// highest that it was triggered with.
	triggered bool
	value     uint64
}

// reach completes the recording of an event at an instant of the GPU's clock. An event that was
// recorded again meanwhile is reached by the newer recording.
func (p *pending) reach(at time.Duration) {
	p.com.Start, p.com.End, p.com.Value[0] = uint64(at), uint64(at), uint64(at)
	if p.event.records == p.record {
		p.event.reached, p.event.at = true, at
	}
}

// event returns the event that a command records or waits for.
func (c *command) event() (*event, error) {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return nil, err
	}
	return c.ch.x.recordedEvent(h.Handle)
}

// recordedEvent returns an event of the kind that is recorded.
func (x *Executor) recordedEvent(handle uint64) (*event, error) {
	ev, err := x.events.get(handle)
	if err == nil && ev.triggered {
		return nil, abi.StatusInvalidHandle
	}
	return ev, err
}

// triggeredEvent returns the event, and its value, that a command triggers or awaits.
func (c *command) triggeredEvent() (*event, uint64, error) {
	p, err := abi.DecodePoint(c.entry)
	if err != nil {
		return nil, 0, err
	}
	ev, err := c.ch.x.events.get(p.Handle)
	if err == nil && !ev.triggered {
		err = abi.StatusInvalidHandle
	}
	return ev, p.Value, err
}

func eventCreate(c *command, p *pending) error {
	if _, err := abi.DecodeEmpty(c.entry); err != nil {
		return err
	}
	if c.h.Aux&^(abi.EventNoTiming|abi.EventTriggered) != 0 {
		return fmt.Errorf("event flags %#x: %w", c.h.Aux, abi.StatusInvalidValue)
	}
	var err error
	p.com.Value[0], err = c.ch.x.events.add(&event{
		untimed: c.h.Aux&abi.EventNoTiming != 0, triggered: c.h.Aux&abi.EventTriggered != 0,
	})
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
	now, err := c.ch.x.now()
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

// eventTrigger raises a triggered event's value. Channels that await it go on in the same step.
func eventTrigger(c *command, p *pending) error {
	ev, value, err := c.triggeredEvent()
	if err != nil {
		return err
	}
	now, err := c.ch.x.now()
	if err != nil {
		return err
	}
	ev.recorded, ev.reached, ev.at = true, true, now
	ev.value = max(ev.value, value)
	p.com.Value[0] = uint64(now)
	return nil
}

// eventAwaits reports whether a channel waits for a value of a triggered event.
func eventAwaits(c *command) bool {
	ev, value, err := c.triggeredEvent()
	return err == nil && ev.value < value && c.ch.x.poison == nil
}

// eventAwait has only to have waited.
func eventAwait(c *command, _ *pending) error {
	_, _, err := c.triggeredEvent()
	return err
}

// waitsForEvent reports whether the channel's next command waits for an event. The work that the event
// waits for is counted where it is: in another channel, or nowhere if it is the guest's to trigger.
func (ch *channel) waitsForEvent() bool {
	e := &ch.fetched[ch.next]
	op := abi.Opcode(e[0]) | abi.Opcode(e[1])<<8
	if op != abi.OpEventWait && op != abi.OpEventAwait {
		return false
	}
	ch.current = command{ch: ch, entry: e}
	return commands[op].wait(&ch.current)
}

func eventQuery(c *command, p *pending) error {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	ev, err := c.ch.x.events.get(h.Handle)
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
	from, err := c.ch.x.recordedEvent(e.Start)
	if err != nil {
		return err
	}
	to, err := c.ch.x.recordedEvent(e.End)
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
