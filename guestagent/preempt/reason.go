package preempt

import "fmt"

// Reason says why a kernel is left as it is, or why some of its forms are not offered. The list is closed: operators
// count kernels by it, and what to do about each stands in docs/preemption.md.
type Reason uint8

// The reasons. Those from ExitInFunction on only keep a kernel from running several tasks in one block, as too many
// barriers to rewrite do (TooBig): it still has the early exit with one task a block, unless it also waits for other
// blocks, which needs the loop.
const (
	// None: every form is offered.
	None Reason = iota
	// NoBody: the kernel is declared here and defined elsewhere.
	NoBody
	// GridSync: its blocks wait for others, by cooperative groups or by hand, and are not proven to wait for earlier ones
	// alone.
	GridSync
	// Cluster: its blocks work together in clusters.
	Cluster
	// DeviceLaunch: it launches kernels itself.
	DeviceLaunch
	// ExternalCall: it calls a function that this module does not define and nobody knows.
	ExternalCall
	// IndirectCall: an indirect call may reach a function that reads the block's index, or one that is not known.
	IndirectCall
	// Recursion: a function that calls itself would have to be given the block's index, or waits for other blocks.
	Recursion
	// NameInUse: a name that the transformed kernel needs is taken.
	NameInUse
	// Parameters: there is no room for the launch's arguments behind its own.
	Parameters
	// TooBig: the kernel and what it calls are longer than what is transformed.
	TooBig
	// UnsupportedInstruction: an instruction's result would differ, or nobody knows what it does.
	UnsupportedInstruction

	// ExitInFunction: a device function ends threads (exit), which would end the loop's as well.
	ExitInFunction
	// DivergentNamedBarrier: threads that have returned would be missed at a barrier that can't be rewritten: not
	// barrier 0, one over part of the block, or with a number computed at run time.
	DivergentNamedBarrier
	// DivergentFunctionBarrier: the same in a device function.
	DivergentFunctionBarrier
	// WarpAfterReturn: some lanes of a warp may have returned when the others exchange values or wait at a barrier with
	// a thread count. Lanes that ended don't take part and are not waited for, but in a loop they have not ended.
	WarpAfterReturn
	// LastingState: what the kernel leaves behind in a block at its end must not be there when it starts: memory
	// barriers (mbarrier), bulk copies, tensor memory, changed register counts, arrivals that nobody waited for.
	LastingState

	reasons
)

var reasonNames = [reasons]string{
	"", "no-body", "grid-sync", "cluster", "device-launch", "external-call", "indirect-call", "recursion", "name-in-use",
	"parameters", "too-big", "unsupported-instruction",
	"exit-in-function", "divergent-named-barrier", "divergent-function-barrier", "warp-after-return", "lasting-state",
}

// String returns the reason as tables and JSON have it; "" for None.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason-%d", uint8(r))
}

// MarshalText makes a reason its name in JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
