// Package sysfs reads the PCI functions of a guest from /sys: which exist, which addresses the
// kernel assigned, and which kernel driver is bound to them. It can bind one to vfio-pci, and
// receives the kernel's events about devices that come and go.
//
// All paths are under an injected root, so that a tree of plain files can replace a machine.
package sysfs
