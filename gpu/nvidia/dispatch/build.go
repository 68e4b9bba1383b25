package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/callable"
	"vgpud/ptx/variables"
)

const (
	// IdleNanos is how long a dispatcher without events stays on the GPU, in nanoseconds.
	IdleNanos = 5_000_000
	// gapNanos is the least time between two polls, in nanoseconds, that shows that others have had the GPU: a poll takes
	// one to two microseconds, and a change of contexts more than a hundred.
	gapNanos = 50_000
	// maxParams bounds the bytes of parameters that a dispatcher copies: PTX's bound on a kernel's.
	maxParams = 32764
)

// Kernel is an event kernel for which a dispatcher is made.
type Kernel struct {
	Number int    // in the event area
	Name   string // of the entry in the module
	// Grid and Block are the launch's. All blocks must fit the GPU at a time.
	Grid, Block gpu.Dim3
	ParamBytes  int
	Entries     int
}

// Dispatcher is a kernel that dispatches an event kernel's events. Its parameters are 20 bytes: the
// GPU's addresses of the event area and of the control block, and a number, 4 bytes, that differs
// from launch to launch. It is launched with the event kernel's grid, blocks and dynamic shared memory.
type Dispatcher struct {
	PTX   string
	Entry string
	// Registers is how many 32-bit registers the event kernel has alive at a time, by estimate.
	Registers int
}

// A Refusal says why a kernel has no dispatcher. Its events are launched by the host.
type Refusal struct {
	Why    abi.EventReason
	Detail string
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%v: %s", r.Why, r.Detail)
}

// Why returns the reason why a kernel has no dispatcher: of an error of [Build], or of what was to be done
// with what it made.
func Why(err error) abi.EventReason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Why
	}
	if r, ok := errors.AsType[*variables.Refusal](err); ok {
		return abi.EventReasonOf(r.Reason.String())
	}
	return abi.EventReasonDriver
}

// Build makes the dispatcher of a kernel of m. find returns where the module that was loaded from m has
// the variable of a name: the kernel uses that one. m is bound as by [ptx.Resolve], and stays as it is
// otherwise. The error is a [*Refusal] or a [*variables.Refusal], or one of PTX that does not bind.
func Build(m *ptx.Module, k *Kernel, find func(name string) (variables.Place, error)) (*Dispatcher, error) {
	if k.Entries < 1 || k.Entries > abi.MaxEventEntries || k.ParamBytes > maxParams || k.Number < 0 || k.Number >= abi.MaxEventKernels {
		return nil, fmt.Errorf("dispatcher of event kernel %d with %d entries of %d bytes: %w", k.Number, k.Entries, k.ParamBytes, gpu.ErrInvalidLaunch)
	}
	// Constant memory comes first, since known values of it help to show that a kernel can be called.
	made, reports, err := callable.Make(only(m, k.Name), callable.Options{})
	if err != nil {
		return nil, err
	}
	if len(reports) != 1 {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, gpu.ErrNotFound)
	}
	r := &reports[0]
	switch {
	case r.Reason != callable.None:
		return nil, &Refusal{abi.EventReasonOf(r.Reason.String()), r.Detail}
	case r.ParamBytes != k.ParamBytes:
		return nil, &Refusal{abi.EventReasonParams, fmt.Sprintf("%d bytes of parameters in its PTX, not %d", r.ParamBytes, k.ParamBytes)}
	}
	if made, err = variables.Bind(made, r.Function, find); err != nil {
		return nil, err
	}
	if name := prints(made); name != "" {
		return nil, &Refusal{abi.EventReasonPrints, fmt.Sprintf("it calls %s, whose text the driver writes out when a kernel has ended, from the kernel's own module", name)}
	}
	raise(made)
	if fetch := coherent(made); fetch != "" {
		return nil, &Refusal{abi.EventReasonFetch, fmt.Sprintf("%s goes through a cache that is kept while a kernel runs, and a dispatcher is one kernel over many events", fetch)}
	}
	d := &Dispatcher{Registers: r.Registers}
	text := made.String()
	prefix := "vgpud_dispatch"
	for strings.Contains(text, prefix) {
		prefix += "_"
	}
	d.Entry = prefix
	d.PTX = text + program(k, prefix, r)
	return d, nil
}

// only returns m with one of its kernels.
func only(m *ptx.Module, name string) *ptx.Module {
	out := *m
	out.Items = slices.DeleteFunc(slices.Clone(m.Items), func(it ptx.Item) bool {
		f, ok := it.(*ptx.Func)
		return ok && f.Entry && f.Name != name
	})
	return &out
}

// prints returns the function by which a kernel prints, or "": what m calls and does not have is the driver's.
func prints(m *ptx.Module) string {
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Body == nil && (f.Name == "vprintf" || f.Name == "__assertfail") {
			return f.Name
		}
	}
	return ""
}

// coherent has a kernel's loads see what was written before its event. To the compiler ld.global.nc and
// ldu say that nobody writes what they load while a kernel runs: between two events of a dispatcher, which is one
// kernel, anybody may. It returns an instruction that has no such form, because it fetches from a texture or
// a surface (CUDA C++ Programming Guide, "Read/Write Coherency"), or "". m is a copy.
func coherent(m *ptx.Module) (fetch string) {
	var block func(b *ptx.Block)
	block = func(b *ptx.Block) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ptx.Block:
				block(s)
			case *ptx.Instr:
				switch {
				case s.Opcode == "ld" && s.Has("nc"):
					s.Modifiers = slices.DeleteFunc(slices.Clone(s.Modifiers), func(m string) bool { return m == "nc" })
				case s.Opcode == "ldu":
					s.Opcode = "ld"
				case s.Opcode == "tex", s.Opcode == "tld4", s.Opcode == "suld":
					fetch = s.Opcode
				}
			}
		}
	}
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Body != nil {
			block(f.Body)
		}
	}
	return fetch
}

// raise has the module say the least version and architecture that the dispatcher's memory model
// needs (PTX ISA §8).
func raise(m *ptx.Module) {
	if m.Version.Major < 6 {
		m.Version = ptx.Version{Major: 6}
	}
	if len(m.Target) == 0 {
		return
	}
	number := strings.TrimRight(strings.TrimPrefix(m.Target[0], "sm_"), "abcdefghijklmnopqrstuvwxyz")
	if n, err := strconv.Atoi(number); err == nil && n < 70 {
		m.Target = append([]string{"sm_70"}, m.Target[1:]...)
	}
}
