package preempt

import "fmt"

// Reason says why a kernel has no form, or not all forms. The list is closed: operators count
// kernels by it, and docs/preemption.md says what to do about each.
type Reason uint8

// The reasons. Those from ExitInFunction on only keep a block from running several tasks, as too
// many barriers to rewrite do (TooBig): the kernel still has the early exit with one task a block,
// unless it also waits for other blocks, which needs the loop.
const (
	// None means that every form is offered.
	None Reason = iota
	// NoBody means that the kernel is declared here and defined elsewhere.
	NoBody
	// GridSync means that its blocks wait for others, by cooperative groups or by their own means,
	// and are not proven to wait only for earlier ones.
	GridSync
	// Cluster means that its blocks cooperate in clusters.
	Cluster
	// DeviceLaunch means that it launches kernels itself.
	DeviceLaunch
	// ExternalCall means that it calls a function which is neither defined in this module nor
	// known.
	ExternalCall
	// IndirectCall means that an indirect call may reach a function that is unknown, or one that
	// needs the block's index where it can't be placed in shared memory.
	IndirectCall
	// NameInUse means that the module uses a name which the transformation needs.
	NameInUse
	// Parameters means that the kernel's parameters leave no room for the launch's arguments.
	Parameters
	// TooBig means that the kernel with all that it calls exceeds a limit.
	TooBig
	// UnsupportedInstruction means that an instruction's result would differ, or that the
	// instruction is unknown.
	UnsupportedInstruction

	// ExitInFunction means that a device function ends threads (exit), which would end the loop's
	// thread as well.
	ExitInFunction
	// DivergentNamedBarrier means that threads which have returned would be missing at a barrier
	// that can't be rewritten: it is not barrier 0, or covers part of the block, or its number is
	// computed at run time.
	DivergentNamedBarrier
	// DivergentFunctionBarrier means the same for a barrier in a device function.
	DivergentFunctionBarrier
	// WarpAfterReturn means that some lanes of a warp may have returned when others exchange values
	// or wait at a barrier with a thread count. Lanes that ended take no part and are not waited
	// for, but in a loop they have not ended.
	WarpAfterReturn
	// LastingState means that what the kernel leaves behind in a block must not be there when the
	// next task starts: memory barriers (mbarrier), bulk copies, tensor memory, changed register
	// counts, arrivals that no thread waited for.
	LastingState

	reasons
)

var reasonNames = [reasons]string{
	"", "no-body", "grid-sync", "cluster", "device-launch", "external-call", "indirect-call", "name-in-use",
	"parameters", "too-big", "unsupported-instruction",
	"exit-in-function", "divergent-named-barrier", "divergent-function-barrier", "warp-after-return", "lasting-state",
}

// String returns the reason as in tables and JSON; "" for None.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason-%d", uint8(r))
}

// MarshalText encodes a reason as its name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
