// Package vfio uses Linux's VFIO: a process gets a PCI device, its regions mapped, its interrupts
// as eventfds. It is for guests with vfio-pci; it is not vfio-user, by which a host offers a
// device.
//
// [Open] takes the kernel as a [Kernel], so that tests can replace it.
package vfio
