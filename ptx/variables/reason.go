package variables

import "fmt"

// Reason says why a kernel was not bound to the variables of another module. The list is closed.
type Reason uint8

// The reasons.
const (
	// None means that it was bound.
	None Reason = iota
	// NoBody means that the module has no function or kernel of that name with a body.
	NoBody
	// NoAddress means that it uses a variable of which the address is not known, or that is smaller
	// on the GPU than in the text.
	NoAddress
	// InFunction means that a function declares a variable in global or constant memory, which no
	// driver finds by its name.
	InFunction
	// Texture means that it uses a variable that names a texture, a sampler or a surface: what is
	// bound to it is bound to the original's.
	Texture
	// Managed means that it uses a variable whose memory the driver moves between host and GPU, or
	// that has one address for several GPUs.
	Managed
	// FunctionAddress means that it calls through a pointer, or takes a function's address. Pointers
	// that it finds in memory are to the original's functions, and those that it leaves there would be
	// to the copy's.
	FunctionAddress
	// SharedAddress means that a variable's initial value holds the address of a shared variable,
	// which has another place in the copy.
	SharedAddress
	// ConstantAddress means that an address in constant space comes from elsewhere, or may leave the
	// function.
	ConstantAddress
	// SpaceQuery means that it asks whether an address is in constant or global space, and uses
	// variables in constant memory.
	SpaceQuery
	// NarrowAddress means that addresses have 32 bits, or that one of a variable is taken in fewer
	// than 64.
	NarrowAddress
	// UnsupportedUse means that an instruction uses a variable, or constant space, in a way that is
	// not known.
	UnsupportedUse

	reasons
)

var reasonNames = [reasons]string{
	"", "no-body", "no-address", "in-function", "texture", "managed", "function-address", "shared-address", "constant-address",
	"space-query", "narrow-address", "unsupported-use",
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

// A Refusal is why something was not bound.
type Refusal struct {
	Reason Reason
	Detail string // explains Reason, for people
	Err    error  // of a NoAddress: what the caller's function returned, or nil
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("%v: %s: %v", r.Reason, r.Detail, r.Err)
	}
	return fmt.Sprintf("%v: %s", r.Reason, r.Detail)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// refuse returns a refusal.
func refuse(r Reason, format string, args ...any) error {
	return &Refusal{Reason: r, Detail: fmt.Sprintf(format, args...)}
}
