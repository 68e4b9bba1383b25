package simt

import (
	"context"
	"fmt"

	"vgpud/gpu"
	"vgpud/ptx"
)

// maxFrame bounds the local memory of one activation, in bytes.
const maxFrame = 1 << 20

// loader is a module being loaded.
type loader struct {
	ctx      context.Context // ends the load
	looked   int             // compiled, when last looked whether it has
	opts     Options
	costs    CostModel
	module   *Module
	prog     *ptx.Program
	image    *image
	codes    map[*ptx.Func]*ptx.Code
	addrs    map[*ptx.Func]uint64 // of functions whose addresses are taken
	taken    []*ptx.Func          // in order of their addresses
	shared   []*ptx.Var           // the module's, which every kernel has
	compiled int                  // instructions so far
}

// Load compiles a parsed module. A kernel with an instruction that this GPU
// can't execute is loaded, and [Kernel.Refused]. Load refuses, naming kernel,
// line and instruction, with gpu.ErrInvalidModule what no GPU could execute, and
// with gpu.ErrUnsupported what is too large. It binds the names in m's tree and
// keeps parts of it. Once ctx has ended it gives up soon, with ctx's error.
func Load(ctx context.Context, m *ptx.Module, o Options) (*Module, error) {
	prog, err := ptx.Resolve(m)
	if err != nil {
		return nil, fmt.Errorf("load module: %w: %w", gpu.ErrInvalidModule, err)
	}
	if m.AddressSize == 32 {
		return nil, fmt.Errorf("load module: addresses of 32 bits: %w", gpu.ErrUnsupported)
	}
	l := &loader{
		ctx: ctx, opts: o.withDefaults(), costs: DefaultCosts, module: &Module{byName: map[string]*Kernel{}}, prog: prog,
		codes: map[*ptx.Func]*ptx.Code{}, addrs: map[*ptx.Func]uint64{},
	}
	if o.Costs != nil {
		l.costs = *o.Costs
	}
	kernels := 0
	for _, c := range prog.Codes {
		l.codes[c.Func] = c
		if c.Func.Entry {
			kernels++
		}
	}
	if kernels > l.opts.MaxKernels {
		return nil, fmt.Errorf("load module: %d kernels, more than %d: %w", kernels, l.opts.MaxKernels, gpu.ErrUnsupported)
	}
	for _, it := range m.Items {
		if v, ok := it.(*ptx.Var); ok && v.Space == ptx.SharedSpace {
			l.shared = append(l.shared, v)
		}
	}
	l.image = &l.module.vars
	if err := l.layOut(); err != nil {
		return nil, fmt.Errorf("load module: %w", err)
	}
	l.takeAddresses()
	if err := l.initialise(); err != nil {
		return nil, fmt.Errorf("load module: %w", err)
	}
	for _, c := range prog.Codes {
		if !c.Func.Entry {
			continue
		}
		k, err := l.compile(c)
		if err != nil {
			return nil, fmt.Errorf("load module: %w", err)
		}
		l.module.kernels = append(l.module.kernels, k)
		l.module.byName[k.attr.Name] = k
	}
	l.image.at = nil // it keeps the tree
	l.module.size = l.size()
	return l.module, nil
}

// What compiled code takes of the host's memory, in bytes: an instruction with its rarer parts and with the constants
// it needs, what else counts towards the limit on instructions, a kernel, and one of its parameters.
const (
	instBytes   = 256
	spentBytes  = 32
	kernelBytes = 1 << 10
	paramBytes  = 16
)

// size estimates how much of the host's memory the module takes.
func (l *loader) size() uint64 {
	n := uint64(len(l.image.initial)) + spentBytes*uint64(l.compiled)
	for _, k := range l.module.kernels {
		n += kernelBytes + instBytes*uint64(len(k.prog.code)) + paramBytes*uint64(len(k.attr.Params))
	}
	return n
}

// wanted is the end of the load's context, if it has ended.
func (l *loader) wanted() error {
	l.looked = l.compiled
	if err := l.ctx.Err(); err != nil {
		return fmt.Errorf("given up: %w", err)
	}
	return nil
}

// takeAddresses finds the functions that can be called through pointers.
func (l *loader) takeAddresses() {
	take := func(f *ptx.Func) {
		if l.addrs[f] == 0 && l.codes[f] != nil && !f.Entry {
			l.addrs[f] = codeWindow + codeStride*uint64(len(l.taken)+1)
			l.taken = append(l.taken, f)
		}
	}
	for _, c := range l.prog.Codes {
		for _, in := range c.Instrs {
			for i := range in.Operands {
				o := &in.Operands[i]
				if o.Kind == ptx.KindSymbol && o.Sym != nil && o.Sym.Kind == ptx.SymFunc && in.Opcode != "call" {
					take(o.Sym.Func)
				}
			}
		}
	}
	for _, it := range l.prog.Module.Items {
		v, ok := it.(*ptx.Var)
		if !ok || v.Init == nil || v.Type.Class() == ptx.Opaque {
			continue
		}
		for val := range v.Values() {
			if s := l.prog.Globals[val.Name]; val.Name != "" && s != nil && s.Kind == ptx.SymFunc {
				take(s.Func)
			}
		}
	}
}

// addressOf is the address of a function that may be called through a pointer;
// 0 for any other.
func (l *loader) addressOf(f *ptx.Func) uint64 { return l.addrs[f] }

// compile makes a kernel.
func (l *loader) compile(code *ptx.Code) (*Kernel, error) {
	c := &compiler{
		loader: l, kernel: code.Func, prog: &program{costs: l.costs, patience: spinLimit, entries: map[uint64]*function{}},
		shared: &layout{}, uniform: map[uniform]uint32{}, special: map[specialKey]operand{}, funcs: map[*ptx.Func]*function{},
		params: map[*ptx.Var]uint64{},
	}
	k := &Kernel{module: l.module, prog: c.prog}
	c.attr = &k.attr
	if err := l.attributes(k, code.Func, c.params); err != nil {
		return nil, err
	}
	c.always() // predicate 0
	c.prog.np = 1
	if err := c.discover(code); err != nil {
		return nil, err
	}
	for i := 0; i < len(c.queue); i++ {
		if err := c.function(c.queue[i]); l.refuse(k, err) {
			k.attr.SharedBytes, k.attr.Registers = c.shared.size, minRegisters
			return k, nil
		} else if err != nil {
			return nil, err
		}
	}
	c.at = nil
	if err := l.wanted(); err != nil {
		return nil, err
	}
	c.finish()
	if n := c.prog.n32 + 2*c.prog.n64; n > l.opts.MaxRegisters {
		return nil, c.unsupported("%d registers, more than %d", n, l.opts.MaxRegisters)
	}
	local := c.localBytes()
	if local > l.opts.MaxLocal {
		return nil, c.unsupported("%d bytes of local memory a thread, more than %d", local, l.opts.MaxLocal)
	}
	c.prog.localBytes = uint32(local)
	k.attr.LocalBytes = local
	k.attr.SharedBytes = c.shared.size
	k.attr.Registers = min(max(c.pressure(), minRegisters), 255)
	c.forget()
	return k, nil
}

// minRegisters is how many registers a kernel is said to have at least.
const minRegisters = 16

// attributes fills in what a kernel's declaration says, and notes where its
// parameters are.
func (l *loader) attributes(k *Kernel, f *ptx.Func, where map[*ptx.Var]uint64) error {
	a := &k.attr
	a.Name = f.Name
	a.MaxThreadsPerBlock = maxThreads
	dim := func(name string) (gpu.Dim3, bool) {
		d, ok := f.Directive(name)
		if !ok {
			return gpu.Dim3{}, false
		}
		v := [3]uint32{1, 1, 1}
		for i, n := range d.Args {
			if i < 3 && n > 0 && n <= maxThreads {
				v[i] = uint32(n)
			}
		}
		return gpu.Dim3{X: v[0], Y: v[1], Z: v[2]}, true
	}
	if d, ok := dim("maxntid"); ok {
		a.MaxThreadsPerBlock = int(min(d.Count(), maxThreads))
	}
	if d, ok := dim("reqntid"); ok {
		a.MaxThreadsPerBlock = int(min(d.Count(), maxThreads))
		a.ReqBlock = d
	}
	a.ConstBytes = l.image.constBytes
	a.PTXVersion = 10*l.prog.Module.Version.Major + l.prog.Module.Version.Minor
	if len(l.prog.Module.Target) > 0 {
		fmt.Sscanf(l.prog.Module.Target[0], "sm_%d", &a.BinaryVersion)
	}
	for _, v := range f.Params {
		n, ok := sizeOf(v, maxParamBytes)
		if !ok || a.ParamBytes+n > maxParamBytes {
			return fmt.Errorf("kernel %s: parameters of more than %d bytes: %w", f.Name, maxParamBytes, gpu.ErrInvalidModule)
		}
		at := alignUp(a.ParamBytes, uint64(max(v.Alignment(), 1)))
		a.Params = append(a.Params, gpu.Param{Offset: at, Size: n})
		a.ParamBytes = at + n
		where[v] = at
	}
	return nil
}

// maxParamBytes is the most that a kernel's parameters may take (PTX ISA 8.1:
// 32,764).
const maxParamBytes = 32764
