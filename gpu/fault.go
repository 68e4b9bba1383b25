package gpu

import (
	"errors"
	"fmt"
)

// Errors that a device's methods wrap; test for them with errors.Is.
var (
	// ErrOutOfMemory means that the context's limit or the device's memory is reached.
	ErrOutOfMemory = errors.New("out of GPU memory")
	// ErrMemoryLimit means that the budget that a context shares with its owner's others is spent.
	// It is an ErrOutOfMemory too.
	ErrMemoryLimit = fmt.Errorf("memory limit reached: %w", ErrOutOfMemory)
	// ErrFull means that the device has as many programs or contexts as it accepts, in all or of
	// one owner. It may have room later. It is an ErrOutOfMemory too.
	ErrFull error = fullError{}
	// ErrInvalidPtr means an address or range outside the context's allocations.
	ErrInvalidPtr = errors.New("not an allocation of this context")
	// ErrInvalidModule means malformed PTX. The text has line and column.
	ErrInvalidModule = errors.New("invalid module")
	// ErrUnsupported means something well-formed that this device can't do.
	ErrUnsupported = errors.New("not supported by this device")
	// ErrNotFound means that there is no function or variable of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalidLaunch means a grid, block or parameter buffer that the function can't take.
	ErrInvalidLaunch = errors.New("invalid launch")
	// ErrInvalidCopy means a box or rows that are impossible, wherever they lie.
	ErrInvalidCopy = errors.New("invalid copy")
	// ErrInvalidLimit means a limit's value that is impossible, or no longer possible.
	ErrInvalidLimit = errors.New("invalid limit")
	// ErrInvalidTexture means an array, texture or surface whose description makes no sense, or that
	// the hardware's limits exclude.
	ErrInvalidTexture = errors.New("invalid texture")
	// ErrPoisoned means that an earlier fault ended the context.
	ErrPoisoned = errors.New("context ended by an earlier fault")
	// ErrTimeLimit means that the kernel ran longer than its context allows.
	ErrTimeLimit = errors.New("kernel time limit exceeded")
	// ErrLost means that the device does not answer any more.
	ErrLost = errors.New("GPU lost")
)

// fullError is the type of ErrFull.
type fullError struct{}

// Error implements error.
func (fullError) Error() string { return "GPU is full" }

// Unwrap returns ErrOutOfMemory, for programs that distinguish no other shortage.
func (fullError) Unwrap() error { return ErrOutOfMemory }

// FaultKind is what a kernel did wrong.
type FaultKind uint8

// The kinds of fault, with CUDA's error beside each.
const (
	FaultAddress     FaultKind = iota + 1 // 700: illegal address
	FaultMisaligned                       // 716: misaligned address
	FaultTrap                             // 719: trap instruction
	FaultInstruction                      // 715: illegal instruction
	FaultTimeLimit                        // 702: launch timeout
	FaultStack                            // 718: invalid pc, stack or call depth
	FaultBarrier                          // 719: a barrier no thread can complete
	FaultAssert                           // 710: a device-side assertion failed
)

var faultText = [...]string{
	FaultAddress:     "illegal address",
	FaultMisaligned:  "misaligned address",
	FaultTrap:        "trap",
	FaultInstruction: "illegal instruction",
	FaultTimeLimit:   "time limit exceeded",
	FaultStack:       "call stack exhausted",
	FaultBarrier:     "barrier never completed",
	FaultAssert:      "assertion failed",
}

// String describes the kind.
func (k FaultKind) String() string {
	if int(k) < len(faultText) && faultText[k] != "" {
		return faultText[k]
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// Fault is an error that a kernel caused. It poisons the kernel's context and no other. Fields that
// the GPU does not report are left out: an NVIDIA GPU reports no place, and the kernel only if no
// other ran beside it.
type Fault struct {
	Kind    FaultKind
	Kernel  string
	Block   Dim3
	Thread  Dim3
	Line    int    // of the PTX
	Address uint64 // where it applies
	Size    uint32 // of the access, bytes
	Space   string // "global", "shared", …
	Write   bool
	// Text is the message of a failed assertion, as CUDA prints it, if it is known.
	Text string
}

// Error describes the fault with kernel, block, thread, line and address, as far as they are known.
func (f *Fault) Error() string {
	if f.Text != "" {
		return f.Text
	}
	if f.Kernel == "" {
		return f.Kind.String()
	}
	if f.Line == 0 {
		return fmt.Sprintf("%s in kernel %s", f.Kind, f.Kernel)
	}
	s := fmt.Sprintf("%s in kernel %s, block (%d,%d,%d), thread (%d,%d,%d), PTX line %d",
		f.Kind, f.Kernel, f.Block.X, f.Block.Y, f.Block.Z, f.Thread.X, f.Thread.Y, f.Thread.Z, f.Line)
	if f.Kind == FaultAddress || f.Kind == FaultMisaligned {
		op := "read"
		if f.Write {
			op = "write"
		}
		s += fmt.Sprintf(": %d-byte %s %s at %#x", f.Size, f.Space, op, f.Address)
	}
	return s
}

// Is makes a fault by time limit match [ErrTimeLimit].
func (f *Fault) Is(target error) bool {
	return target == ErrTimeLimit && f.Kind == FaultTimeLimit
}
