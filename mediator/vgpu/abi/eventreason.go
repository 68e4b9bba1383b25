package abi

import (
	"fmt"
	"slices"
)

// EventReason says why the host launches a kernel's events, and not the GPU by itself. The list is
// closed. Executors tell the daemon by numbers, which stay what they are.
type EventReason uint8

// EventReasonNone is the reason where the GPU launches the events, or nobody said why not.
const EventReasonNone EventReason = 0

// The reasons that are neither of making a kernel callable (package callable) nor of binding it to
// its module's variables (package variables), which have theirs by name: see [EventReasonOf].
const (
	// EventReasonDriver means that the GPU's driver did not take what was made of the kernel, or that
	// its code was not understood.
	EventReasonDriver EventReason = iota + firstOwnReason
	// EventReasonMachineCode means that the module is machine code, or longer than is kept.
	EventReasonMachineCode
	// EventReasonGrid means that its blocks would take too much of the GPU while they wait for events.
	EventReasonGrid
	// EventReasonPrints means that it prints or asserts.
	EventReasonPrints
	// EventReasonFetch means that it reads textures or surfaces, through a cache that is kept while a kernel runs.
	EventReasonFetch
	// EventReasonParams means that its parameters in its code are not those that it was registered with.
	EventReasonParams
)

const firstOwnReason = 32

// eventReasonNames are the names, by number. Those before firstOwnReason are package callable's and
// then package variables'.
var eventReasonNames = [...]string{
	0: "", 1: "no-body", 2: "cooperative", 3: "cluster", 4: "device-launch", 5: "external-call", 6: "indirect-call", 7: "exit-in-function",
	8: "barrier", 9: "warp-after-return", 10: "lasting-state", 11: "too-many-registers", 12: "parameters", 13: "name-in-use", 14: "too-big",
	15: "unsupported-instruction",
	16: "no-address", 17: "in-function", 18: "texture", 19: "managed", 20: "function-address", 21: "shared-address", 22: "constant-address",
	23: "space-query", 24: "narrow-address", 25: "unsupported-use",

	EventReasonDriver: "driver", EventReasonMachineCode: "machine-code", EventReasonGrid: "grid", EventReasonPrints: "prints",
	EventReasonFetch: "fetch", EventReasonParams: "parameters-differ",
}

// EventReasonOf returns the reason of a name, or [EventReasonDriver] if there is none of that name.
func EventReasonOf(name string) EventReason {
	if i := slices.Index(eventReasonNames[1:], name); i >= 0 && name != "" {
		return EventReason(i + 1)
	}
	return EventReasonDriver
}

// String returns the reason's name; "" for none.
func (r EventReason) String() string {
	name := nameOf(uint32(r), eventReasonNames[:], "reason")
	if name == "" && r != EventReasonNone {
		return fmt.Sprintf("reason %d", uint8(r)) // nobody has it
	}
	return name
}
