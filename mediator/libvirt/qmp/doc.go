// Package qmp plugs virtual GPUs into VMs that run, and unplugs them, by QEMU's
// monitor: its own socket ([Dial]), or through libvirt's daemon ([DialDomain]),
// which has that socket for itself.
//
// [Inspect] says what a machine is and which ports it has room behind, [Fit] whether
// its memory can be shared, [Plug] and
// [Unplug] do it and see that the guest has done its part.
package qmp
