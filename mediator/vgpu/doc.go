// Package vgpu is the virtual GPU's device model: a PCI function with a trapped
// register region (BAR0) and a region of memory shared with the guest (BAR2),
// served over vfio-user. docs/device.md describes it for those who write drivers.
//
// The device keeps the tables of contexts and channels and checks what the guest
// asks of them; it does not carry out commands. That is its [Backend]'s part: for
// each context it starts an executor, which maps BAR2 itself, reads the channels'
// rings and signals the guest's eventfds. So neither commands nor completions
// pass through this package, and a guest that floods its registers delays nobody
// but itself.
//
// [registers] is the device as a state machine: it takes an access and answers
// with what to do, and touches neither memory nor descriptors. [Device] is the
// shell around it.
package vgpu
