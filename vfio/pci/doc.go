// Package pci models the configuration space of a PCI Express endpoint: a header of type 0, memory
// BARs that answer the sizing protocol, and a list of capabilities. It is pure, without I/O or
// locks. A [Function] describes the endpoint, [New] lays out its space, and a [Space] answers reads
// and writes of any width. The state is three bytes for each byte of the space: the value, the bits
// that software may set, and the bits that software clears by writing ones. The owner of the device
// acts on the changes that [Space.Write] returns.
//
// Registers and their bits are those of the PCI Local Bus Specification 3.0 and the PCI Express
// Base Specification 5.0, under the names of Linux's include/uapi/linux/pci_regs.h.
package pci
