package abi

import "fmt"

// DeviceStatus holds the bits of the STATUS register.
type DeviceStatus uint32

// Bits of the STATUS register.
const (
	DeviceReady      DeviceStatus = 1 << iota // the device answers; clear while it resets
	DeviceNegotiated                          // a version was selected: contexts can be created
	DeviceLost                                // the physical GPU is gone; every channel fails
)

// A Control is what is written to the control register of a slot.
type Control uint32

// The controls.
const (
	ControlCreate  Control = 1 // contexts and channels
	ControlDestroy Control = 2 // contexts, with their channels, and channels
	ControlReset   Control = 3 // contexts: drop all contents and start again; the channels close
)

// A ContextState is the state of a context's slot.
type ContextState uint32

// The states of a context.
const (
	ContextFree       ContextState = 0 // may be created
	ContextCreating   ContextState = 1 // its executor is starting
	ContextReady      ContextState = 2 // channels may be opened and run
	ContextFaulted    ContextState = 3 // the GPU or the executor failed; reset or destroy it
	ContextResetting  ContextState = 4 // its executor is being replaced
	ContextDestroying ContextState = 5 // its executor is ending
)

var contextStateNames = []string{"free", "creating", "ready", "faulted", "resetting", "destroying"}

// String returns the state's name.
func (s ContextState) String() string { return nameOf(uint32(s), contextStateNames, "state") }

// A ChannelState is the state of a channel's slot.
type ChannelState uint32

// The states of a channel.
const (
	ChannelFree    ChannelState = 0 // may be created
	ChannelOpening ChannelState = 1 // waits for its executor; entries may be submitted already
	ChannelReady   ChannelState = 2 // fetched
	ChannelFailed  ChannelState = 3 // no longer fetched; ERROR says why; destroy it
	ChannelClosing ChannelState = 4 // its executor stops fetching
)

var channelStateNames = []string{"free", "opening", "ready", "failed", "closing"}

// String returns the state's name.
func (s ChannelState) String() string { return nameOf(uint32(s), channelStateNames, "state") }

// An ErrorCode says why a register write was refused, a context faulted or a channel failed.
// Commands fail with a [Status] instead.
type ErrorCode uint32

// The error codes.
const (
	ErrorNone          ErrorCode = 0
	ErrorBadVersion    ErrorCode = 1  // the version selected is not offered
	ErrorBadFeatures   ErrorCode = 2  // a feature accepted is not offered, or contexts exist already
	ErrorNotNegotiated ErrorCode = 3  // no version was selected yet
	ErrorBadControl    ErrorCode = 4  // not a control of this slot
	ErrorBadState      ErrorCode = 5  // the slot's state does not allow this
	ErrorBadSlot       ErrorCode = 6  // a slot that the device does not have
	ErrorBadContext    ErrorCode = 7  // the channel names a context that is not ready
	ErrorRingEntries   ErrorCode = 8  // entries are not a power of two within the limits
	ErrorRingAlignment ErrorCode = 9  // a ring does not begin on a page
	ErrorRingOutside   ErrorCode = 10 // a ring lies outside what of BAR2 is for rings
	ErrorRingOverlap   ErrorCode = 11 // a ring overlaps another ring
	ErrorBadVector     ErrorCode = 12 // a vector that the device does not have
	ErrorBadFlags      ErrorCode = 13 // flags that this version does not know
	ErrorBadReset      ErrorCode = 14 // not the reset value
	ErrorLimit         ErrorCode = 15 // the guest is over a limit of the host's
	ErrorExecutorStart ErrorCode = 16 // the executor did not start
	ErrorExecutorLost  ErrorCode = 17 // the executor died
	ErrorGPUFault      ErrorCode = 18 // a kernel faulted; the fault's text can be had after reset
	ErrorPutRange      ErrorCode = 19 // a put pointer went out of range
	ErrorGetRange      ErrorCode = 20 // a completion get pointer went out of range
	ErrorTorn          ErrorCode = 21 // a command was published without its continuation entries
	ErrorReset         ErrorCode = 22 // the context was reset or destroyed under the channel
	ErrorDeviceLost    ErrorCode = 23 // the physical GPU is gone
	ErrorTimeLimit     ErrorCode = 24 // a kernel ran past the limit and was ended
	ErrorInternal      ErrorCode = 25 // the host failed
	ErrorBadRequest    ErrorCode = 26 // a floating context asks for no memory, or for blocks that no GPU runs
	ErrorNoRoom        ErrorCode = 27 // no GPU of the host could hold the floating context, even alone
	errorCodeEnd                 = 28
)

var errorCodeTexts = [errorCodeEnd]string{
	"no error",
	"the ABI version selected is not offered",
	"a feature accepted is not offered, or contexts exist already",
	"no ABI version was selected",
	"unknown control",
	"the slot's state does not allow this",
	"no such slot",
	"the context is not ready",
	"the ring's entries are not a power of two within the limits",
	"the ring does not begin on a page",
	"the ring lies outside the part of BAR2 for rings",
	"the ring overlaps another",
	"no such vector",
	"unknown flags",
	"not the reset value",
	"over a limit of the host's",
	"the executor did not start",
	"the executor died",
	"a kernel faulted",
	"the put pointer is out of range",
	"the completion get pointer is out of range",
	"a command was published without its continuation entries",
	"the context was reset or destroyed",
	"the GPU is gone",
	"a kernel ran past the time limit",
	"internal error of the host",
	"the floating context asks for no memory, or for blocks that no GPU runs",
	"no GPU of the host could ever hold the floating context",
}

// String returns the code's text.
func (c ErrorCode) String() string {
	if c < errorCodeEnd {
		return errorCodeTexts[c]
	}
	return fmt.Sprintf("error code %d", uint32(c))
}

// Error makes an ErrorCode an error, for hosts and drivers that pass it on.
func (c ErrorCode) Error() string { return c.String() }

// nameOf returns names[v], or what and the number.
func nameOf(v uint32, names []string, what string) string {
	if int64(v) < int64(len(names)) {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}
