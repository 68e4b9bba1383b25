package dispatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/callable"
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
	Reason callable.Reason // None: Detail tells all
	Detail string
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Reason == callable.None {
		return r.Detail
	}
	return fmt.Sprintf("%v: %s", r.Reason, r.Detail)
}

// Build makes the dispatcher of a kernel of m. m is bound as by [ptx.Resolve], and stays as it is
// otherwise. The error is a [*Refusal], or one of PTX that does not bind.
func Build(m *ptx.Module, k *Kernel) (*Dispatcher, error) {
	if k.Entries < 1 || k.Entries > abi.MaxEventEntries || k.ParamBytes > maxParams || k.Number < 0 || k.Number >= abi.MaxEventKernels {
		return nil, fmt.Errorf("dispatcher of event kernel %d with %d entries of %d bytes: %w", k.Number, k.Entries, k.ParamBytes, gpu.ErrInvalidLaunch)
	}
	alone, err := only(m, k.Name)
	if err != nil {
		return nil, err
	}
	made, reports, err := callable.Make(alone, callable.Options{})
	if err != nil {
		return nil, err
	}
	if len(reports) != 1 {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, gpu.ErrNotFound)
	}
	r := &reports[0]
	switch {
	case r.Reason != callable.None:
		return nil, &Refusal{r.Reason, r.Detail}
	case r.ParamBytes != k.ParamBytes:
		return nil, &Refusal{Detail: fmt.Sprintf("%d bytes of parameters in its PTX, not %d", r.ParamBytes, k.ParamBytes)}
	}
	made.Items = slices.DeleteFunc(made.Items, func(it ptx.Item) bool {
		f, ok := it.(*ptx.Func)
		return ok && f.Entry
	})
	raise(made)
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

// only returns m with one of its kernels. Variables that hold a state, and that the dispatcher's copy
// would have for itself, are refused.
func only(m *ptx.Module, name string) (*ptx.Module, error) {
	out := *m
	out.Items = nil
	for _, it := range m.Items {
		switch it := it.(type) {
		case *ptx.Func:
			if it.Entry && it.Name != name {
				continue
			}
		case *ptx.Var:
			if it.Space == ptx.GlobalSpace || it.Space == ptx.ConstSpace {
				return nil, &Refusal{Detail: fmt.Sprintf("its module has the variable %s", it.Name)}
			}
		}
		out.Items = append(out.Items, it)
	}
	return &out, nil
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
