// Package qmp plugs virtual GPUs into running VMs and unplugs them, through QEMU's monitor: its own
// socket ([Dial]), or libvirt's daemon ([DialDomain]), which occupies that socket for its domains.
//
// [Inspect] returns a VM's ports and their room, [Plug] and [Unplug] change the VM and wait until the
// guest has done its part.
package qmp
