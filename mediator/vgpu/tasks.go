package vgpu

import (
	"time"

	"vgpud/mediator/vgpu/abi"
)

// taskRow is what the host answers in a row of the task table.
type taskRow struct {
	state   abi.TaskState
	reason  abi.WaitReason
	gpu     uint32 // the GPU's number plus 1
	granted uint64
	waited  time.Duration
}

func (r *registers) loadTask(c *contextSlot, reg uint32) uint32 {
	switch reg {
	case abi.TaskStatus:
		return uint32(c.task.state)
	case abi.TaskReason:
		return uint32(c.task.reason)
	case abi.TaskGPU:
		return c.task.gpu
	case abi.TaskGrantedLo:
		return uint32(c.task.granted)
	case abi.TaskGrantedHi:
		return uint32(c.task.granted >> 32)
	case abi.TaskWaitedLo:
		return uint32(c.task.waited)
	case abi.TaskWaitedHi:
		return uint32(c.task.waited >> 32)
	}
	if i := int(reg / 4); i < len(c.request) {
		return c.request[i]
	}
	return 0
}

// storeTask carries out a write to a register of a row of the task table.
func (r *registers) storeTask(slot int, reg, v uint32) abi.ErrorCode {
	if slot >= len(r.contexts) {
		return abi.ErrorBadSlot
	}
	c := &r.contexts[slot]
	i := int(reg / 4)
	if i >= len(c.request) {
		return abi.ErrorNone // read-only
	}
	if c.state != abi.ContextFree {
		return abi.ErrorBadState
	}
	c.request[i] = v
	return abi.ErrorNone
}

// checkTask returns why a context can't be created with its flags and its row of the task table.
func (r *registers) checkTask(c *contextSlot) abi.ErrorCode {
	if c.hasRequest() && !r.floats() {
		return abi.ErrorBadFlags
	}
	q, _, code := r.taskOf(c)
	if limit := r.cfg.MemoryBytes; code == abi.ErrorNone && limit > 0 && q.Memory > limit {
		return abi.ErrorLimit
	}
	return code
}

// floats reports whether the guest's contexts float: the host offers that, and the driver knows it.
func (r *registers) floats() bool {
	return r.version >= abi.Version1_3 && r.features&abi.FeatureFloating != 0
}

// hasRequest reports whether the context's row of the task table says what it asks for.
func (c *contextSlot) hasRequest() bool {
	return abi.ContextFlagsBits(c.flags)&abi.ContextFloats != 0
}

// taskOf returns what a context asks for, and whether it floats at all. One whose row does not count
// asks for all that its guest may have.
func (r *registers) taskOf(c *contextSlot) (q abi.TaskRequest, floats bool, code abi.ErrorCode) {
	switch {
	case !r.floats():
		return abi.TaskRequest{}, false, abi.ErrorNone
	case c.hasRequest():
		q, code = abi.DecodeTaskRequest(&c.request)
		return q, true, code
	default:
		return abi.TaskRequest{Memory: r.cfg.MemoryBytes}, r.cfg.MemoryBytes > 0, abi.ErrorNone
	}
}

// creating returns the slot that ref names if it floats and its executor is not there yet, or nil.
func (r *registers) creating(ref ContextRef) *contextSlot {
	c := r.liveContext(ref)
	if c == nil || c.task.state == abi.TaskNone || c.state != abi.ContextCreating && c.state != abi.ContextResetting {
		return nil
	}
	return c
}

// ContextWaits says why a context that floats waits for a GPU.
func (d *Device) ContextWaits(ref ContextRef, why abi.WaitReason) {
	d.event(func(r *registers) {
		if c := r.creating(ref); c != nil && c.task.state == abi.TaskWaits {
			c.task.reason = why
		}
	})
}

// ContextPlaced says that a context that floats was placed on a GPU, by its number on the host, and
// granted memory there, after it had waited. The context is still creating, or has moved.
func (d *Device) ContextPlaced(ref ContextRef, gpu int, granted uint64, waited time.Duration) {
	d.event(func(r *registers) {
		if c := r.liveContext(ref); c != nil && c.task.state != abi.TaskNone {
			c.task = taskRow{state: abi.TaskPlaced, gpu: uint32(gpu) + 1, granted: granted, waited: max(waited, 0)}
		}
	})
}
