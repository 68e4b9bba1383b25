package simt

import (
	"vgpud/gpu"
)

// Options limit a module. A zero field stands for the default beside it.
type Options struct {
	MaxInstructions int        // of all kernels together: 4 million
	MaxKernels      int        // 65,536
	MaxShared       uint64     // bytes of static shared memory per block: 227 KiB
	MaxLocal        uint64     // bytes of local memory per thread: 512 KiB
	MaxRegisters    int        // 32-bit registers of a kernel with its callees, after sharing: 4,096
	StackBytes      uint64     // local memory for recursion and calls through pointers: 16 KiB
	Costs           *CostModel // DefaultCosts
	Traces          bool       // keep what [Launch.Trace] needs
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

// Module is a loaded PTX module: its kernels, ready to run, and the layout of its variables. Place
// it before launching any of its kernels.
type Module struct {
	kernels []*Kernel
	byName  map[string]*Kernel
	vars    image // variables
	size    uint64
}

// Kernels returns the module's kernels in the order of the source.
func (m *Module) Kernels() []*Kernel { return m.kernels }

// CodeBytes returns the approximate size in the host's memory of the module's compiled code and of
// its variables' initial values.
func (m *Module) CodeBytes() uint64 { return m.size }

// Kernel returns the kernel called name, or nil.
func (m *Module) Kernel(name string) *Kernel { return m.byName[name] }

// Kernel is one entry function of a module.
type Kernel struct {
	attr   gpu.FunctionAttributes
	module *Module
	prog   *program
	// refused is the reason why the kernel can't be launched, or "".
	refused string
}

// Name returns the kernel's name.
func (k *Kernel) Name() string { return k.attr.Name }

// Attributes returns the kernel's attributes as in CUDA. Registers is an estimate from the values
// alive at a time. The caller must not change the contents of Params.
func (k *Kernel) Attributes() gpu.FunctionAttributes { return k.attr }

// LocalPerWarp returns the local memory of a resident warp in bytes.
func (k *Kernel) LocalPerWarp() uint64 { return k.attr.LocalBytes * lanes }
