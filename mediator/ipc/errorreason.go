package ipc

import (
	"math"
	"sync/atomic"
)

// ErrorReason is why a guest's command failed.
type ErrorReason uint8

// The reasons. ErrorOther are failures of the host, and all failures that an executor of an older
// version counted.
const (
	ErrorOther     ErrorReason = iota
	ErrorRequest               // the guest's command can't be carried out as it is
	ErrorMemory                // memory or handles are used up: the GPU's, or by the guest's limit
	ErrorModule                // a module that is not one, or not for this GPU
	ErrorFault                 // a kernel's fault
	ErrorTimeLimit             // a kernel ran past its time limit
	ErrorCanceled              // the channel was closed, or the context reset, before the command ran
)

// ErrorReasons is the number of reasons.
const ErrorReasons = int(ErrorCanceled) + 1

// reasonWords are a context's counts of the reasons but ErrorOther. A count stays at its largest
// value.
type reasonWords [ErrorReasons - 1]atomic.Uint32

// add counts an error. The context's executor alone calls it.
func (w *reasonWords) add(r ErrorReason) {
	if i := int(r) - 1; i >= 0 && i < len(w) && w[i].Load() < math.MaxUint32 {
		w[i].Add(1)
	}
}

// counts returns the errors by reason. ErrorOther are those of all that no word counts.
func (w *reasonWords) counts(all uint64) (n [ErrorReasons]uint64) {
	n[ErrorOther] = all
	for i := range w {
		n[i+1] = uint64(w[i].Load())
		n[ErrorOther] -= min(n[i+1], n[ErrorOther])
	}
	return n
}

// addEach returns the sums of two sets of counts.
func addEach(a, b [ErrorReasons]uint64) [ErrorReasons]uint64 {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// maxEach returns the larger of the two values of each count.
func maxEach(a, b [ErrorReasons]uint64) [ErrorReasons]uint64 {
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return a
}
