package vgpu

import "vgpud/mediator/vgpu/abi"

// ContextReady answers [Backend.CreateContext] and [Backend.ResetContext]: the
// context's executor runs.
func (d *Device) ContextReady(c ContextRef) {
	d.event(func(r *registers) { r.contextReady(c) })
}

// ContextFaulted tells that the context's executor did not start, died, or that a
// kernel faulted. After a kernel's fault, [abi.ErrorGPUFault] or
// [abi.ErrorTimeLimit], the executor still answers, with the status of the fault.
// After anything else the context's channels fail with the same code; commands
// that were not completed never will be. After [abi.ErrorDeviceLost] the device's
// status says that the GPU is gone, until a context is ready again.
func (d *Device) ContextFaulted(c ContextRef, code abi.ErrorCode) {
	d.event(func(r *registers) { r.contextFaulted(c, code) })
}

// ContextGone answers [Backend.DestroyContext].
func (d *Device) ContextGone(c ContextRef) {
	d.event(func(r *registers) { r.contextGone(c) })
}

// ChannelReady answers [Backend.OpenChannel]: the executor fetches.
func (d *Device) ChannelReady(ch ChannelRef) {
	d.event(func(r *registers) { r.channelReady(ch) })
}

// ChannelFailed tells that the executor does not fetch the channel any more, or
// never did: an [abi.ErrorPutRange], [abi.ErrorGetRange] or [abi.ErrorTorn] of the
// guest's making, or a failure of its own.
func (d *Device) ChannelFailed(ch ChannelRef, code abi.ErrorCode) {
	d.event(func(r *registers) { r.channelFailed(ch, code) })
}

// ChannelClosed answers [Backend.CloseChannel].
func (d *Device) ChannelClosed(ch ChannelRef) {
	d.event(func(r *registers) { r.channelClosed(ch) })
}

// event changes the state machine on behalf of the backend. No event makes work
// for the backend, so todo stays as it is.
func (d *Device) event(f func(*registers)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.regs)
	d.show()
}
