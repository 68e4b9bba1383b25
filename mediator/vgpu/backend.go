package vgpu

import "vgpud/mediator/vgpu/abi"

// Backend carries out the changes that the guest makes to the device's tables. The device calls it
// from the goroutine that serves the client, one call at a time and with no lock held, so a backend
// may call the device back at once. The guest's processor waits for these calls: none but Reset may
// take long.
//
// A slot may be used again after it was freed. The generation in a reference tells one use from the
// next, and the device ignores reports about an earlier one.
type Backend interface {
	// CreateContext starts an executor, on a GPU that has room if the context floats: ContextWaits
	// and ContextPlaced tell the guest of that. ContextReady or ContextFaulted answers it.
	CreateContext(c Context)
	// ResetContext ends the executor of c's slot, whatever its generation, and starts a new one. It
	// is answered like CreateContext, when the old executor can no longer touch BAR2.
	ResetContext(c Context)
	// DestroyContext ends an executor and with it the context's channels. ContextGone answers it,
	// when the executor can no longer touch BAR2.
	DestroyContext(c ContextRef)
	// OpenChannel makes the executor fetch from the channel's rings. ChannelReady or ChannelFailed
	// answers it.
	OpenChannel(ch Channel)
	// CloseChannel makes the executor stop fetching a channel and drop its commands that were not
	// started. ChannelClosed answers it, when the executor can no longer touch the rings. The
	// channel or its context may have failed before.
	CloseChannel(ch ChannelRef)
	// Kick wakes the executor that reads this channel. A guest can cause any number of calls.
	Kick(ch ChannelRef)
	// EventKernel reports whether an event kernel of that number is registered. The guest has rung
	// its doorbell register; a guest can cause any number of calls.
	EventKernel(n int) bool
	// VectorsChanged reports that the guest changed the eventfds of some vectors: see
	// [Device.Vector].
	VectorsChanged(start, count int)
	// Reset ends everything, and returns when no executor can touch BAR2 or an eventfd any more.
	Reset()
}

// ContextRef names one generation of a context's slot.
type ContextRef struct {
	Slot       int
	Generation uint32
}

// ChannelRef names one generation of a channel's slot.
type ChannelRef struct {
	Slot       int
	Generation uint32
}

// Context is a context as the guest requested it.
type Context struct {
	ContextRef
	// Tag is a number chosen by the guest, such as a process id.
	Tag uint32
	// Version and Features are the negotiated ones.
	Version  abi.Version
	Features abi.Features
	// Floats reports whether the context has no GPU of its own. Then Task is what it asks for, and Whole
	// reports that it did not say so: it may have what its guest may.
	Floats bool
	Task   abi.TaskRequest
	Whole  bool
}

// Ring is a checked ring. It lies after BAR2's header and, since version 1.1, in the part for
// rings, and overlaps no other open ring.
type Ring struct {
	Offset  uint64 // in BAR2
	Entries int
}

// Channel is a channel as the guest requested it, checked.
type Channel struct {
	ChannelRef
	Context    ContextRef
	Page       int // offset in BAR2 of the channel's page
	Submission Ring
	Completion Ring
	Vector     int // -1: none
	Priority   int32
}
