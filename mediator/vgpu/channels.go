package vgpu

import (
	"math/bits"

	"vgpud/mediator/vgpu/abi"
)

// storeChannel carries out a write to a register of a channel's slot.
func (r *registers) storeChannel(slot int, reg, v uint32) abi.ErrorCode {
	if slot >= len(r.channels) {
		return abi.ErrorBadSlot
	}
	c := &r.channels[slot]
	switch reg {
	case abi.ChannelControl:
		if err := r.controlChannel(slot, abi.Control(v)); err != abi.ErrorNone {
			if c.state != abi.ChannelFailed {
				c.err = err
			}
			return err
		}
	case abi.ChannelContext, abi.ChannelSubmissionLo, abi.ChannelSubmissionHi, abi.ChannelSubmissionEntries,
		abi.ChannelVector, abi.ChannelCompletionLo, abi.ChannelCompletionHi, abi.ChannelCompletionEntries,
		abi.ChannelPriority, abi.ChannelFlags:
		if c.state != abi.ChannelFree {
			return abi.ErrorBadState
		}
		c.written[reg/4] = v
	}
	return abi.ErrorNone
}

func (r *registers) controlChannel(slot int, control abi.Control) abi.ErrorCode {
	c := &r.channels[slot]
	switch control {
	case abi.ControlCreate:
		if c.state != abi.ChannelFree {
			return abi.ErrorBadState
		}
		open, err := r.checkChannel(slot)
		if err != abi.ErrorNone {
			return err
		}
		c.generation++
		open.ChannelRef = ChannelRef{Slot: slot, Generation: c.generation}
		c.open, c.doorbells = open, 0
		r.contexts[open.Context.Slot].channels++
		r.dirty.pages[slot/64] |= 1 << (slot % 64)
		r.setChannel(slot, abi.ChannelOpening, abi.ErrorNone)
		r.actions = append(r.actions, action{kind: openChannel, channel: open})
	case abi.ControlDestroy:
		if c.state == abi.ChannelFree || c.state == abi.ChannelClosing {
			return abi.ErrorBadState
		}
		r.setChannel(slot, abi.ChannelClosing, abi.ErrorNone)
		r.actions = append(r.actions, action{kind: closeChannel, channel: Channel{ChannelRef: c.open.ChannelRef}})
	default:
		return abi.ErrorBadControl
	}
	return abi.ErrorNone
}

// checkChannel returns the channel that a slot's registers describe.
func (r *registers) checkChannel(slot int) (Channel, abi.ErrorCode) {
	written := &r.channels[slot].written
	at := func(reg int) uint32 { return written[reg/4] }
	ch := Channel{
		Page:     abi.ChannelPage(slot),
		Vector:   -1,
		Priority: int32(at(abi.ChannelPriority)),
	}
	context := at(abi.ChannelContext)
	if context >= uint32(len(r.contexts)) || r.contexts[context].state != abi.ContextReady {
		return ch, abi.ErrorBadContext
	}
	ch.Context = r.contextRef(int(context))
	if at(abi.ChannelFlags) != 0 {
		return ch, abi.ErrorBadFlags
	}
	if v := at(abi.ChannelVector); v != abi.NoVector {
		if v >= uint32(r.cfg.Vectors) {
			return ch, abi.ErrorBadVector
		}
		ch.Vector = int(v)
	}
	var err abi.ErrorCode
	ch.Submission, err = r.checkRing(at(abi.ChannelSubmissionLo), at(abi.ChannelSubmissionHi), at(abi.ChannelSubmissionEntries))
	if err != abi.ErrorNone {
		return ch, err
	}
	ch.Completion, err = r.checkRing(at(abi.ChannelCompletionLo), at(abi.ChannelCompletionHi), at(abi.ChannelCompletionEntries))
	if err != abi.ErrorNone {
		return ch, err
	}
	if ch.Submission.overlaps(ch.Completion) {
		return ch, abi.ErrorRingOverlap
	}
	for i := range r.channels {
		o := &r.channels[i]
		if o.state == abi.ChannelFree {
			continue
		}
		if ch.Submission.overlaps(o.open.Submission) || ch.Submission.overlaps(o.open.Completion) ||
			ch.Completion.overlaps(o.open.Submission) || ch.Completion.overlaps(o.open.Completion) {
			return ch, abi.ErrorRingOverlap
		}
	}
	return ch, abi.ErrorNone
}

func (r *registers) checkRing(lo, hi, entries uint32) (Ring, abi.ErrorCode) {
	offset := uint64(hi)<<32 | uint64(lo)
	ring := Ring{Offset: offset, Entries: int(entries)}
	switch {
	case bits.OnesCount32(entries) != 1 || entries < abi.MinRingEntries || entries > uint32(r.cfg.MaxRingEntries):
		return ring, abi.ErrorRingEntries
	case offset%abi.PageSize != 0:
		return ring, abi.ErrorRingAlignment
	}
	from, to := r.ringRange()
	if offset < from || offset > to || to-offset < uint64(abi.RingBytes(int(entries))) {
		return ring, abi.ErrorRingOutside
	}
	return ring, abi.ErrorNone
}

// ringRange returns the part of BAR2 where rings may lie.
func (r *registers) ringRange() (from, to uint64) {
	from = uint64(abi.HeaderBytes(len(r.channels)))
	if r.version < abi.Version1_1 {
		return from, uint64(r.cfg.SharedBytes)
	}
	return from, from + uint64(r.cfg.RingsBytes())
}

// overlaps reports whether two rings share a page.
func (a Ring) overlaps(b Ring) bool {
	return a.Offset < b.Offset+uint64(abi.RingBytes(b.Entries)) && b.Offset < a.Offset+uint64(abi.RingBytes(a.Entries))
}

func (r *registers) setChannel(slot int, s abi.ChannelState, err abi.ErrorCode) {
	r.channels[slot].state, r.channels[slot].err = s, err
	r.dirty.channels[slot/64] |= 1 << (slot % 64)
}

// freeChannel frees a channel's slot. Its error code stays readable.
func (r *registers) freeChannel(slot int) {
	c := &r.channels[slot]
	r.contexts[c.open.Context.Slot].channels--
	c.open = Channel{}
	r.setChannel(slot, abi.ChannelFree, c.err)
}

// liveChannel returns the slot that ref names, or nil if ref is of an earlier generation or the
// slot is free.
func (r *registers) liveChannel(ref ChannelRef) *channelSlot {
	if ref.Slot < 0 || ref.Slot >= len(r.channels) {
		return nil
	}
	c := &r.channels[ref.Slot]
	if c.generation != ref.Generation || c.state == abi.ChannelFree {
		return nil
	}
	return c
}

// channelReady is the backend's answer to OpenChannel.
func (r *registers) channelReady(ref ChannelRef) {
	if c := r.liveChannel(ref); c != nil && c.state == abi.ChannelOpening {
		r.setChannel(ref.Slot, abi.ChannelReady, abi.ErrorNone)
		r.dirty.event = true
	}
}

// channelFailed records that a channel is no longer fetched.
func (r *registers) channelFailed(ref ChannelRef, code abi.ErrorCode) {
	if c := r.liveChannel(ref); c != nil && (c.state == abi.ChannelOpening || c.state == abi.ChannelReady) {
		r.setChannel(ref.Slot, abi.ChannelFailed, code)
		r.dirty.event = true
	}
}

// channelClosed is the backend's answer to CloseChannel.
func (r *registers) channelClosed(ref ChannelRef) {
	if c := r.liveChannel(ref); c != nil && c.state == abi.ChannelClosing {
		r.freeChannel(ref.Slot)
		r.dirty.event = true
	}
}
