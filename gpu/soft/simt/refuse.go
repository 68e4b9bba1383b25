package simt

import (
	"errors"
	"fmt"

	"vgpud/gpu"
)

// A kernel that uses what this GPU does not have, such as clusters, does not prevent its module
// from being loaded. The other kernels work, and launching this one fails.

// instructionError is the reason why an instruction of a kernel, or of a function that it calls,
// can't be compiled.
type instructionError struct {
	kernel string
	what   string
	kind   error
}

// Error returns a text with kernel, line, instruction and reason.
func (e *instructionError) Error() string {
	return fmt.Sprintf("kernel %s, %s: %v", e.kernel, e.what, e.kind)
}

// Unwrap returns the error of package gpu.
func (e *instructionError) Unwrap() error { return e.kind }

// maxQuoted limits the part of an instruction that an error quotes, in bytes, since a refused
// kernel keeps it.
const maxQuoted = 120

func shortened(s string) string {
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "…"
	}
	return s
}

// refuse turns kernel k, which has an instruction that this GPU can't execute, into a refused
// kernel. It returns false if err is an error of the whole module.
func (l *loader) refuse(k *Kernel, err error) bool {
	if e, ok := errors.AsType[*instructionError](err); ok && e.kind == gpu.ErrUnsupported {
		k.refused, k.prog = e.what, &program{costs: l.costs}
		return true
	}
	return false
}

// refuseSize turns kernel k into a refused kernel because of a limit on its size.
func (l *loader) refuseSize(k *Kernel, c *compiler, what string) *Kernel {
	k.refused, k.prog = what, &program{costs: l.costs}
	k.attr.SharedBytes, k.attr.Registers = c.shared.size, minRegisters
	return k
}

// Refused returns why the kernel can't be launched on this GPU, in one line: the instruction, and
// what the GPU lacks. It is empty if the kernel can be launched.
func (k *Kernel) Refused() string { return k.refused }

// RefusedError returns the error of launching the named kernel, with the result of Refused as
// reason.
func RefusedError(kernel, why string) error {
	return &instructionError{kernel: kernel, what: why, kind: gpu.ErrUnsupported}
}
