package simt

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"vgpud/gpu"
	"vgpud/ptx"
)

// maxFrame limits the local memory of one activation in bytes.
const maxFrame = 1 << 20

// loader loads a module.
type loader struct {
	ctx      context.Context // cancels the load
	checked  int             // value of compiled at the last check of ctx
	opts     Options
	costs    CostModel
	module   *Module
	prog     *ptx.Program
	image    *image
	codes    map[*ptx.Func]*ptx.Code
	addrs    map[*ptx.Func]uint64 // addresses of functions whose address is taken
	taken    []*ptx.Func          // these functions in order of their addresses
	initial  []*ptx.Func          // those of them that are in variables' initial values
	named    bool                 // a kernel's pointers are only to what it names: see pointers.go
	shared   []*ptx.Var           // the module's shared variables
	compiled int                  // instructions so far
	layouts  map[layoutKey][]uint16
}

// Load compiles a parsed module. A kernel with an instruction that this GPU can't execute is loaded
// and [Kernel.Refused]. Load fails with gpu.ErrInvalidModule for an instruction that no GPU can
// execute, naming kernel, line and instruction, and with gpu.ErrUnsupported for a module that is
// too large. It binds the names in m's tree and keeps parts of it. It returns ctx's error soon
// after ctx has ended.
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
	err = l.compileAll()
	if errors.Is(err, errTooLarge) && len(l.taken) > 0 {
		l.named = true
		err = l.compileAll()
	}
	if err != nil {
		return nil, fmt.Errorf("load module: %w", err)
	}
	l.image.at = nil // it refers to the tree
	l.module.size = l.size()
	return l.module, nil
}

// compileAll compiles the module's kernels.
func (l *loader) compileAll() error {
	m := l.module
	m.kernels, l.compiled, l.checked, l.layouts = nil, 0, 0, nil
	for _, c := range l.prog.Codes {
		if !c.Func.Entry {
			continue
		}
		k, err := l.compile(c)
		if err != nil {
			return err
		}
		m.kernels = append(m.kernels, k)
		m.byName[k.attr.Name] = k
	}
	return nil
}

// Estimates of the host's memory in bytes: for an instruction with its extra fields and constants,
// for other items that count towards the limit on instructions, for a kernel, and for one of its
// parameters.
const (
	instBytes   = 256
	spentBytes  = 32
	kernelBytes = 1 << 10
	paramBytes  = 16
)

// size estimates the host's memory that the module uses.
func (l *loader) size() uint64 {
	n := uint64(len(l.image.initial)) + spentBytes*uint64(l.compiled)
	for _, k := range l.module.kernels {
		n += kernelBytes + instBytes*uint64(len(k.prog.code)) + paramBytes*uint64(len(k.attr.Params))
	}
	return n
}

// cancelled returns ctx's error if ctx has ended.
func (l *loader) cancelled() error {
	l.checked = l.compiled
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
			for f := range addressesIn(in) {
				take(f)
			}
		}
	}
	initial := map[*ptx.Func]bool{}
	for _, it := range l.prog.Module.Items {
		v, ok := it.(*ptx.Var)
		if !ok || v.Init == nil || v.Type.Class() == ptx.Opaque {
			continue
		}
		for val := range v.Values() {
			if s := l.prog.Globals[val.Name]; val.Name != "" && s != nil && s.Kind == ptx.SymFunc {
				take(s.Func)
				if l.addrs[s.Func] != 0 && !initial[s.Func] {
					initial[s.Func] = true
					l.initial = append(l.initial, s.Func)
				}
			}
		}
	}
}

// addressesIn returns the functions whose addresses an instruction takes.
func addressesIn(in *ptx.Instr) iter.Seq[*ptx.Func] {
	return func(yield func(*ptx.Func) bool) {
		for i := range in.Operands {
			o := &in.Operands[i]
			if o.Kind == ptx.KindSymbol && o.Sym != nil && o.Sym.Kind == ptx.SymFunc && in.Opcode != "call" && !yield(o.Sym.Func) {
				return
			}
		}
	}
}

// addressOf returns the address of a function that may be called through a pointer, and 0 for any
// other.
func (l *loader) addressOf(f *ptx.Func) uint64 { return l.addrs[f] }

// compile compiles a kernel.
func (l *loader) compile(code *ptx.Code) (*Kernel, error) {
	c := &compiler{
		loader: l, kernel: code.Func, prog: &program{costs: l.costs, yieldAfter: spinLimit, entries: map[uint64]*function{}},
		shared: &layout{}, uniform: map[uniform]uint32{}, special: map[specialKey]operand{}, funcs: map[*ptx.Func]*function{},
		params: map[*ptx.Var]uint64{}, named: map[*ptx.Var]bool{},
	}
	k := &Kernel{module: l.module, prog: c.prog}
	c.attr = &k.attr
	if err := l.attributes(k, code.Func, c.params); err != nil {
		return nil, err
	}
	c.always() // allocates predicate 0
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
	if err := l.cancelled(); err != nil {
		return nil, err
	}
	c.finish()
	if n := c.prog.n32 + 2*c.prog.n64; n > l.opts.MaxRegisters {
		return l.refuseSize(k, c, fmt.Sprintf("%d registers, more than %d", n, l.opts.MaxRegisters)), nil
	}
	local := c.localBytes()
	if local > l.opts.MaxLocal {
		return l.refuseSize(k, c, fmt.Sprintf("%d bytes of local memory a thread, more than %d", local, l.opts.MaxLocal)), nil
	}
	c.prog.localBytes = uint32(local)
	k.attr.LocalBytes = local
	k.attr.SharedBytes = c.shared.size
	k.attr.Registers = min(max(c.pressure(), minRegisters), 255)
	c.forget()
	return k, nil
}

// minRegisters is the minimum of the reported registers of a kernel.
const minRegisters = 16

// attributes fills in the attributes that a kernel's declaration determines, and the offsets of its
// parameters.
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
	m := l.prog.Module
	a.PTXVersion, a.BinaryVersion = 10*m.Version.Major+m.Version.Minor, m.Architecture()
	most := uint64(m.MaxParamBytes())
	for _, v := range f.Params {
		n, ok := sizeOf(v, most)
		at := alignUp(a.ParamBytes, uint64(max(v.Alignment(), 1)))
		if !ok || at+n > most {
			return fmt.Errorf("kernel %s: parameters of more than %d bytes, the most in PTX %d.%d: %w", f.Name, most, m.Version.Major, m.Version.Minor, gpu.ErrInvalidModule)
		}
		a.Params = append(a.Params, gpu.Param{Offset: at, Size: n})
		a.ParamBytes = at + n
		where[v] = at
	}
	return nil
}
