package simt

import (
	"errors"
	"fmt"

	"vgpud/gpu"
)

// A kernel that uses what this GPU does not have, such as textures, does not keep its module from being loaded: the
// others work, and the kernel is refused when it is launched.

// instructionError says which instruction of a kernel, or of a function that it calls, can't be compiled, and why.
type instructionError struct {
	kernel string
	what   string
	kind   error
}

// Error names kernel, line, instruction and reason.
func (e *instructionError) Error() string {
	return fmt.Sprintf("kernel %s, %s: %v", e.kernel, e.what, e.kind)
}

// Unwrap returns the error of package gpu.
func (e *instructionError) Unwrap() error { return e.kind }

// maxQuoted bounds what an error quotes of an instruction, in bytes: a kernel that is refused keeps it.
const maxQuoted = 120

func shortened(s string) string {
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "…"
	}
	return s
}

// refuse makes what is left of kernel k, of which this GPU can't execute an instruction. It reports false where err is
// about more than that.
func (l *loader) refuse(k *Kernel, err error) bool {
	if e, ok := errors.AsType[*instructionError](err); ok && e.kind == gpu.ErrUnsupported {
		k.refused, k.prog = e.what, &program{costs: l.costs}
		return true
	}
	return false
}

// Refused says why the kernel can't be launched on this GPU, in a line: which instruction, and what of it the GPU does
// not have. It is empty where the kernel can.
func (k *Kernel) Refused() string { return k.refused }

// RefusedError is the error of launching the kernel named, of which Refused says why.
func RefusedError(kernel, why string) error {
	return &instructionError{kernel: kernel, what: why, kind: gpu.ErrUnsupported}
}
