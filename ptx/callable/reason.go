package callable

import "fmt"

// Reason says why a kernel was not made callable. The list is closed.
type Reason uint8

// The reasons.
const (
	// None means that the kernel was made callable.
	None Reason = iota
	// NoBody means that the kernel is declared here and defined elsewhere.
	NoBody
	// Cooperative means that it synchronizes its grid through the driver (cooperative groups), or that
	// its grid waits for other grids or lets them start (programmatic dependent launch).
	Cooperative
	// Cluster means that its blocks cooperate in clusters.
	Cluster
	// DeviceLaunch means that it launches kernels itself: dynamic parallelism.
	DeviceLaunch
	// ExternalCall means that it calls a function which is neither defined here nor known.
	ExternalCall
	// IndirectCall means that a call through a pointer may reach a function that would have to
	// differ, or one with barriers.
	IndirectCall
	// ExitInFunction means that a device function ends its thread, which would end the caller's.
	ExitInFunction
	// Barrier means that threads which have returned would be missing at a barrier of the block, or
	// that arrivals at one may be left over.
	Barrier
	// WarpAfterReturn means that lanes of a warp may exchange values, or wait for each other, when
	// others have returned: those have not ended, and would be waited for.
	WarpAfterReturn
	// LastingState means that what it leaves behind would be there for the next call: memory
	// barriers (mbarrier), bulk copies, tensor memory, changed register counts.
	LastingState
	// TooManyRegisters means that it needs more registers than [Options.MaxRegisters].
	TooManyRegisters
	// Parameters means that it uses the address of its parameters in a way other than to read them.
	Parameters
	// NameInUse means that the module uses a name that the function would have, or redefines a
	// special register.
	NameInUse
	// TooBig means that the kernel with all that it calls, or the module, exceeds a limit.
	TooBig
	// UnsupportedInstruction means that an instruction's result would differ, or that it is unknown.
	UnsupportedInstruction

	reasons
)

var reasonNames = [reasons]string{
	"", "no-body", "cooperative", "cluster", "device-launch", "external-call", "indirect-call", "exit-in-function", "barrier",
	"warp-after-return", "lasting-state", "too-many-registers", "parameters", "name-in-use", "too-big", "unsupported-instruction",
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
