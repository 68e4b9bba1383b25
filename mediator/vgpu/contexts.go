package vgpu

import (
	"iter"

	"vgpud/mediator/vgpu/abi"
)

// storeContext carries out a write to a register of a context's slot.
func (r *registers) storeContext(slot int, reg, v uint32) abi.ErrorCode {
	if slot >= len(r.contexts) {
		return abi.ErrorBadSlot
	}
	c := &r.contexts[slot]
	switch reg {
	case abi.ContextControl:
		if err := r.controlContext(slot, abi.Control(v)); err != abi.ErrorNone {
			// A faulted context keeps its reason.
			if c.state != abi.ContextFaulted {
				c.err = err
			}
			return err
		}
	case abi.ContextFlags, abi.ContextTag:
		if c.state != abi.ContextFree {
			return abi.ErrorBadState
		}
		if reg == abi.ContextFlags {
			c.flags = v
		} else {
			c.tag = v
		}
	}
	return abi.ErrorNone
}

func (r *registers) controlContext(slot int, control abi.Control) abi.ErrorCode {
	c := &r.contexts[slot]
	switch control {
	case abi.ControlCreate:
		switch {
		case r.version == 0:
			return abi.ErrorNotNegotiated
		case c.state != abi.ContextFree:
			return abi.ErrorBadState
		case abi.ContextFlagsBits(c.flags)&^abi.AllContextFlags != 0:
			return abi.ErrorBadFlags
		case r.features&abi.FeatureContexts == 0 && r.inUse() > 0:
			return abi.ErrorLimit
		}
		if err := r.checkTask(c); err != abi.ErrorNone {
			return err
		}
		r.begin(slot, abi.ContextCreating, createContext)
	case abi.ControlReset:
		if c.state != abi.ContextReady && c.state != abi.ContextFaulted {
			return abi.ErrorBadState
		}
		r.closeChannelsOf(slot)
		r.begin(slot, abi.ContextResetting, resetContext)
	case abi.ControlDestroy:
		if c.state == abi.ContextFree || c.state == abi.ContextDestroying {
			return abi.ErrorBadState
		}
		r.closeChannelsOf(slot)
		r.setContext(slot, abi.ContextDestroying, abi.ErrorNone)
		r.actions = append(r.actions, action{kind: destroyContext, context: Context{ContextRef: r.contextRef(slot)}})
	default:
		return abi.ErrorBadControl
	}
	return abi.ErrorNone
}

// begin starts a new generation of a context's slot.
func (r *registers) begin(slot int, s abi.ContextState, kind actionKind) {
	c := &r.contexts[slot]
	c.generation++
	r.setContext(slot, s, abi.ErrorNone)
	x := Context{ContextRef: r.contextRef(slot), Tag: c.tag, Version: r.version, Features: r.features}
	if x.Task, x.Floats, _ = r.taskOf(c); x.Floats { // checked at create, and not changed since
		c.task = taskRow{state: abi.TaskWaits}
		x.Whole = !c.hasRequest()
	}
	r.actions = append(r.actions, action{kind: kind, context: x})
}

// channelsOf yields the channels of a context's slot that are not free.
func (r *registers) channelsOf(context int) iter.Seq2[int, *channelSlot] {
	return func(yield func(int, *channelSlot) bool) {
		for i := range r.channels {
			ch := &r.channels[i]
			if ch.state != abi.ChannelFree && ch.open.Context.Slot == context && !yield(i, ch) {
				return
			}
		}
	}
}

// closeChannelsOf marks the channels of a context as closing. They are free once the context's
// executor is gone.
func (r *registers) closeChannelsOf(context int) {
	for i := range r.channelsOf(context) {
		r.setChannel(i, abi.ChannelClosing, abi.ErrorReset)
	}
}

// freeChannelsOf frees the channels of earlier generations of a context's slot.
func (r *registers) freeChannelsOf(context int) {
	for i := range r.channelsOf(context) {
		r.freeChannel(i)
	}
}

func (r *registers) setContext(slot int, s abi.ContextState, err abi.ErrorCode) {
	r.contexts[slot].state, r.contexts[slot].err = s, err
	r.dirty.contexts |= 1 << slot
}

func (r *registers) contextRef(slot int) ContextRef {
	return ContextRef{Slot: slot, Generation: r.contexts[slot].generation}
}

// liveContext returns the slot that ref names, or nil if ref is of an earlier generation or the
// slot is free.
func (r *registers) liveContext(ref ContextRef) *contextSlot {
	if ref.Slot < 0 || ref.Slot >= len(r.contexts) {
		return nil
	}
	c := &r.contexts[ref.Slot]
	if c.generation != ref.Generation || c.state == abi.ContextFree {
		return nil
	}
	return c
}

// contextReady is the backend's answer to CreateContext and ResetContext.
func (r *registers) contextReady(ref ContextRef) {
	c := r.liveContext(ref)
	if c == nil || c.state != abi.ContextCreating && c.state != abi.ContextResetting {
		return
	}
	r.freeChannelsOf(ref.Slot)
	r.setContext(ref.Slot, abi.ContextReady, abi.ErrorNone)
	r.lost = false
	r.dirty.event = true
}

// contextFaulted records that a context's executor or kernel failed.
func (r *registers) contextFaulted(ref ContextRef, code abi.ErrorCode) {
	c := r.liveContext(ref)
	if c == nil || c.state == abi.ContextDestroying {
		return
	}
	if c.state == abi.ContextResetting {
		r.freeChannelsOf(ref.Slot)
	}
	// Each context reports the loss of the GPU itself: another context may have been created on the
	// replacement.
	r.lost = r.lost || code == abi.ErrorDeviceLost
	// After a kernel's fault the executor goes on and answers every command with that fault.
	if code != abi.ErrorGPUFault && code != abi.ErrorTimeLimit {
		r.failChannelsOf(ref, code)
	}
	if c.state != abi.ContextFaulted { // keep the first reason
		r.setContext(ref.Slot, abi.ContextFaulted, code)
	}
	r.dirty.event = true
}

// failChannelsOf marks the channels of a context as no longer fetched.
func (r *registers) failChannelsOf(ref ContextRef, code abi.ErrorCode) {
	for i, ch := range r.channelsOf(ref.Slot) {
		if ch.open.Context == ref && (ch.state == abi.ChannelOpening || ch.state == abi.ChannelReady) {
			r.setChannel(i, abi.ChannelFailed, code)
		}
	}
}

// contextGone is the backend's answer to DestroyContext.
func (r *registers) contextGone(ref ContextRef) {
	c := r.liveContext(ref)
	if c == nil || c.state != abi.ContextDestroying {
		return
	}
	r.freeChannelsOf(ref.Slot)
	c.flags, c.tag = 0, 0
	c.request, c.task = abi.TaskRequestWords{}, taskRow{}
	r.setContext(ref.Slot, abi.ContextFree, abi.ErrorNone)
	r.dirty.event = true
}
