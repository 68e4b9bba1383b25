package vgpu

import "vgpud/mediator/vgpu/abi"

// ContextReady answers [Backend.CreateContext] and [Backend.ResetContext]: the context's executor
// runs.
func (d *Device) ContextReady(c ContextRef) {
	d.event(func(r *registers) { r.contextReady(c) })
}

// ContextFaulted reports that the context's executor did not start or died, or that a kernel
// faulted. After a kernel's fault, [abi.ErrorGPUFault] or [abi.ErrorTimeLimit], the executor still
// answers, with the status of the fault. After any other code the context's channels fail with that
// code, and unfinished commands never complete. After [abi.ErrorDeviceLost] the device's status
// says that the GPU is gone, until a context is ready again.
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

// ChannelFailed reports that the executor does not fetch the channel any more, or never did:
// because of an [abi.ErrorPutRange], [abi.ErrorGetRange] or [abi.ErrorTorn] that the guest caused,
// or a failure of its own.
func (d *Device) ChannelFailed(ch ChannelRef, code abi.ErrorCode) {
	d.event(func(r *registers) { r.channelFailed(ch, code) })
}

// ChannelClosed answers [Backend.CloseChannel].
func (d *Device) ChannelClosed(ch ChannelRef) {
	d.event(func(r *registers) { r.channelClosed(ch) })
}

// event changes the state machine for the backend. Events create no actions, so those that there are
// stay.
func (d *Device) event(f func(*registers)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.regs)
	d.publish()
}
