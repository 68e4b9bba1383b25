// Package vfio is Linux's VFIO: a PCI device in a user's hands, its regions mapped,
// its interrupts as eventfds. It is the guest's side of vfio-pci, not to be mixed up
// with vfio-user, which is how a host offers a device.
//
// [Open] takes the kernel as a [Kernel], so that tests need none.
package vfio
