// Package sysfs is the PCI functions of a guest as its kernel shows them under
// /sys: which there are, what the kernel has given them, which kernel driver has
// them, and how to hand one to vfio-pci. It also hears the kernel's events about
// devices that come and go.
//
// Everything lies under an injected root, so that a tree of plain files stands in
// for a machine.
package sysfs
