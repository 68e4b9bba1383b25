// Package pci models the configuration space of a PCI Express endpoint: a header of type 0, memory BARs that answer the
// sizing protocol, and a list of capabilities. It is pure: a [Function] describes what there is, [New] lays it out, and a
// [Space] answers reads and writes of any width by three bytes of state for each byte of the space, the value, the bits
// that software may set, and the bits that it clears by writing ones. What a write means is left to whoever owns the
// device: [Space.Write] tells what changed.
//
// Registers and their bits are those of the PCI Local Bus Specification 3.0 and the PCI Express Base Specification 5.0, under
// the names of Linux's include/uapi/linux/pci_regs.h.
package pci
