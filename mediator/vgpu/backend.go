package vgpu

import "vgpud/mediator/vgpu/abi"

// Backend carries out what the guest asked of the device's tables. The device
// calls it from the goroutine that serves the client, one call at a time and with
// no lock held, so a backend may answer at once by calling the device. The guest's
// processor waits for these calls: other than Reset, none may take long.
//
// A slot may be used again after it was freed; the generation in its reference
// tells the two lives apart, and the device ignores what it is told about an
// earlier one.
type Backend interface {
	// CreateContext starts an executor. It is answered by ContextReady or
	// ContextFaulted.
	CreateContext(c Context)
	// ResetContext ends the executor of c's slot, of whatever earlier generation,
	// and starts a new one; it is answered as CreateContext is, when the old one
	// can no longer touch BAR2.
	ResetContext(c Context)
	// DestroyContext ends an executor and with it the context's channels. It is
	// answered by ContextGone, when the executor can no longer touch BAR2.
	DestroyContext(c ContextRef)
	// OpenChannel has the executor fetch from the channel's rings. It is answered
	// by ChannelReady or ChannelFailed.
	OpenChannel(ch Channel)
	// CloseChannel has the executor let go of a channel, whose commands that were
	// not begun are dropped. It is answered by ChannelClosed, when the executor
	// can no longer touch the rings. The channel or its context may have failed.
	CloseChannel(ch ChannelRef)
	// Kick wakes the executor that reads this channel. A guest can make it be
	// called as often as it likes.
	Kick(ch ChannelRef)
	// VectorsChanged tells that the guest changed the eventfds of some vectors:
	// see [Device.Vector].
	VectorsChanged(start, count int)
	// Reset ends everything there is, and returns when no executor can touch BAR2
	// or an eventfd any more.
	Reset()
}

// ContextRef names one life of a context's slot.
type ContextRef struct {
	Slot       int
	Generation uint32
}

// ChannelRef names one life of a channel's slot.
type ChannelRef struct {
	Slot       int
	Generation uint32
}

// Context is what a guest asked a context to be.
type Context struct {
	ContextRef
	// Tag is a number of the guest's choosing, such as a process id.
	Tag uint32
	// Version and Features are what the guest negotiated.
	Version  abi.Version
	Features abi.Features
}

// Ring is a checked ring: it lies behind BAR2's header, and since version 1.1 in the
// part for rings, apart from every other open ring.
type Ring struct {
	Offset  uint64 // in BAR2
	Entries int
}

// Channel is what a guest asked a channel to be, checked.
type Channel struct {
	ChannelRef
	Context    ContextRef
	Page       int // offset in BAR2 of the channel's page
	Submission Ring
	Completion Ring
	Vector     int // -1: none
	Priority   int32
}
