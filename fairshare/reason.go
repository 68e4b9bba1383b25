package fairshare

// SuspendReason is why a guest is suspended.
type SuspendReason uint8

const (
	// AheadOfShare is that the guest has used more than its part by weight.
	AheadOfShare SuspendReason = iota
	// AtCap is that it has used what its cap allows.
	AtCap
	// BehindGuarantee is that another guest has less than its guarantee.
	BehindGuarantee
	// BudgetSpent is that its budget, or its owner's, is spent.
	BudgetSpent
	// Sampled is that another guest runs alone, to be measured (neon).
	Sampled
)

var suspendReasonNames = [...]string{"share", "cap", "guarantee", "budget", "sampling"}

// String returns the reason's name in the API.
func (r SuspendReason) String() string {
	if int(r) < len(suspendReasonNames) {
		return suspendReasonNames[r]
	}
	return "unknown"
}
