// Package vgpu is the virtual GPU's device model: a PCI function with a trapped register region
// (BAR0) and a region of memory shared with the guest (BAR2), served over vfio-user. docs/device.md
// describes it for authors of drivers.
//
// The device keeps the tables of contexts and channels and checks the guest's requests about them;
// it does not carry out commands. Its [Backend] does: for each context it starts an executor, which
// maps BAR2, reads the channels' rings and signals the guest's eventfds. Neither commands nor
// completions pass through this package, and a guest that floods its registers delays only itself.
//
// [registers] is the device as a state machine: it takes an access and answers with actions, and
// touches neither memory nor descriptors. [Device] adds a lock, the memory and the backend.
package vgpu
