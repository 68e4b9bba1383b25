// Package abi is the interface between a guest and the host: the registers of the virtual GPU's
// BAR0, the layout of its shared BAR2, the 64-byte entries of the submission and completion rings,
// the commands, the status codes, and the protocol by which the two sides advance their ring
// pointers and suppress each other's doorbells and interrupts.
//
// It holds constants, encoders, decoders and the four ring ends ([SubmissionWriter],
// [SubmissionReader], [CompletionWriter], [CompletionReader]). It has no goroutine, no descriptor
// and no clock, imports the standard library only, and is used by the device model, the executor
// and the guest's driver. docs/device.md describes the same interface in prose; a test compares
// that page with the tables of this package.
//
// Nothing that a guest wrote is trusted: an entry is copied out of shared memory before it is
// decoded, each decoder checks every reserved byte, and the host's ring ends keep their own
// counters privately and compare them with the guest's.
package abi
