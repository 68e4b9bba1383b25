package simt

import (
	"vgpud/gpu"
)

// Options bound what a module may ask for. The zero Options has the defaults
// named beside the fields.
type Options struct {
	MaxInstructions int        // compiled, all kernels together: 4 million
	MaxKernels      int        // 65,536
	MaxShared       uint64     // bytes of static shared memory a block: 227 KiB
	MaxLocal        uint64     // bytes of local memory a thread: 512 KiB
	MaxRegisters    int        // 32-bit registers of one kernel with all that it calls, after those never alive together share: 4,096
	StackBytes      uint64     // of local memory for recursion and calls through pointers: 16 KiB
	Costs           *CostModel // what instructions cost: DefaultCosts
}

func (o Options) withDefaults() Options {
	if o.MaxInstructions <= 0 {
		o.MaxInstructions = 4 << 20
	}
	if o.MaxKernels <= 0 {
		o.MaxKernels = 1 << 16
	}
	if o.MaxShared == 0 {
		o.MaxShared = 227 << 10
	}
	if o.MaxLocal == 0 {
		o.MaxLocal = 512 << 10
	}
	if o.MaxRegisters <= 0 {
		o.MaxRegisters = 4096
	}
	if o.StackBytes == 0 {
		o.StackBytes = 16 << 10
	}
	return o
}

// Module is a loaded PTX module: its kernels, ready to run, and the layout of
// its variables. Place it before launching any of its kernels.
type Module struct {
	kernels []*Kernel
	byName  map[string]*Kernel
	vars    image // variables
	size    uint64
}

// Kernels returns the module's kernels in the order of the source.
func (m *Module) Kernels() []*Kernel { return m.kernels }

// CodeBytes is about how much of the host's memory the module takes beside its
// variables: its compiled code and their initial values.
func (m *Module) CodeBytes() uint64 { return m.size }

// Kernel finds a kernel by name; nil if the module has none of that name.
func (m *Module) Kernel(name string) *Kernel { return m.byName[name] }

// Kernel is one entry function of a module.
type Kernel struct {
	attr   gpu.FunctionAttributes
	module *Module
	prog   *program
	// refused is why it can't be launched.
	refused string
}

// Name is the kernel's name.
func (k *Kernel) Name() string { return k.attr.Name }

// Attributes describe the kernel as CUDA does. Registers is an estimate from
// the values alive at a time. The caller must not change what Params holds.
func (k *Kernel) Attributes() gpu.FunctionAttributes { return k.attr }

// LocalPerWarp is how many bytes of local memory a resident warp takes.
func (k *Kernel) LocalPerWarp() uint64 { return k.attr.LocalBytes * lanes }
