package callable

import (
	"fmt"
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// Options configure Make. The zero Options makes every kernel callable that can be.
type Options struct {
	// MaxRegisters is how many 32-bit registers a thread of the caller has room for. A kernel that
	// needs more by estimate is refused. 0 means no limit.
	MaxRegisters int
}

// Report describes what Make did with one kernel.
type Report struct {
	Kernel   string
	Function string // the function's name; "" if the kernel was refused
	Reason   Reason // why it was
	Detail   string // explains Reason, for people

	Block bool // whole blocks must call it: it has barriers or uses shared memory
	Waits bool // its blocks may wait for one another

	ParamBytes  int // of its arguments in memory
	ParamAlign  int // of their address
	SharedBytes int // static shared memory that it and what it calls declare or name
	Registers   int // 32-bit registers, estimated: the most that are alive at a time, of it and of what it calls
}

// PlaceBytes is the size of the second parameter: %tid, %ntid, %ctaid, %nctaid, three words each.
const PlaceBytes = 4 * placeWords

const (
	placeWords = 12
	suffix     = "__vgpud_call"
	// maxInstrs bounds a kernel with all that it calls, and maxAdded what all functions made of a
	// module's kernels have together.
	maxInstrs = 1 << 20
	maxAdded  = 1 << 22
	// staticShared is how much static shared memory a block may have.
	staticShared = 48 << 10
)

// FunctionName returns the name of the function that Make makes of a kernel.
func FunctionName(kernel string) string { return kernel + suffix }

// Prototype returns the prototype of the functions, for calls through a pointer, as a statement
// with the given label.
func Prototype(label string) string {
	return fmt.Sprintf("%s: .callprototype _ (.param .b64 _, .param .align 4 .b8 _[%d]);", label, PlaceBytes)
}

// Make makes functions of m's kernels. It returns a module with everything that m has, under its own
// name, and the functions behind m's own; and a report for each kernel of m, in order.
//
// m keeps its text, but Make binds its names as ptx.Resolve does, so nothing else may use m
// meanwhile. The new module shares with it what neither changes, and must be resolved before use.
// The error, if any, is Resolve's; a kernel that can't be called is reported, not an error.
func Make(m *ptx.Module, o Options) (*ptx.Module, []Report, error) {
	prog, err := ptx.Resolve(m)
	if err != nil {
		return nil, nil, fmt.Errorf("bind the module's names: %w", err)
	}
	t := &module{
		m: m, prog: prog, names: rewrite.NewNames(m), copier: &rewrite.Copier{}, funcs: map[string]*function{},
		clones: map[*function]string{},
	}
	for _, c := range prog.Codes {
		t.funcs[c.Func.Name] = t.examine(c)
	}
	t.spread()
	t.labels = rewrite.NewLabels(prog)
	var reports []Report
	seen := map[string]bool{}
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Entry && !seen[f.Name] {
			seen[f.Name] = true
			reports = append(reports, t.kernel(f, o))
		}
	}
	t.makeClones()
	return t.assemble(), reports, nil
}

// module is a module while its kernels are made callable.
type module struct {
	m      *ptx.Module
	prog   *ptx.Program
	names  *rewrite.Names
	copier *rewrite.Copier
	funcs  map[string]*function // with a body, by name

	pointers *function // see pointed; nil until needed

	labels rewrite.Labels // that copies keep

	clones map[*function]string // names of copies of device functions
	order  []*function          // those copies, as they were first needed
	added  int                  // instructions and functions, of all kernels together
	made   []*ptx.Func          // of kernels
	copies []*ptx.Func          // of device functions
}

// kernel makes the function of one kernel, or finds why not.
func (t *module) kernel(fn *ptx.Func, o Options) Report {
	r := Report{Kernel: fn.Name, ParamAlign: 1}
	f := t.funcs[fn.Name]
	if f == nil {
		r.Reason, r.Detail = NoBody, "declared without a body"
		return r
	}
	fn = f.code.Func
	w := &walk{module: t, entry: f}
	w.run()
	offsets := layout(fn, &r)
	r.Block, r.Waits, r.SharedBytes, r.Registers = w.block, w.waits, int(w.shared), w.registers
	switch name := FunctionName(fn.Name); {
	case w.reason != None:
		r.Reason, r.Detail = w.reason, w.detail
	case t.names.Globals[name]:
		r.Reason, r.Detail = NameInUse, name
	case o.MaxRegisters > 0 && r.Registers > o.MaxRegisters:
		r.Reason, r.Detail = TooManyRegisters, fmt.Sprintf("%d, more than %d", r.Registers, o.MaxRegisters)
	default:
		t.made = append(t.made, t.makeFunction(f, name, offsets, w))
		r.Function = name
	}
	return r
}

// layout returns where each of a kernel's parameters lies, and sets their size and alignment in r.
func layout(fn *ptx.Func, r *Report) map[string]int64 {
	offsets, end := make(map[string]int64, len(fn.Params)), int64(0)
	for _, p := range fn.Params {
		align := int64(max(p.Alignment(), 1))
		end = (end + align - 1) / align * align
		offsets[p.Name] = end
		// Parse bounds neither; check.go refuses kernels whose parameters exceed what a launch may have.
		end = min(end+max(p.Size(), 0), 1<<31)
		r.ParamAlign = max(r.ParamAlign, int(align))
	}
	r.ParamBytes = int(end)
	return offsets
}

// assemble places the new functions behind the module's own, to which they may refer, and before the
// items that follow.
func (t *module) assemble() *ptx.Module {
	out := *t.m
	last := -1
	for i, it := range t.m.Items {
		if _, ok := it.(*ptx.Func); ok {
			last = i
		}
	}
	out.Items = make([]ptx.Item, 0, len(t.m.Items)+2*len(t.copies)+len(t.made))
	for i, it := range t.m.Items {
		if f, ok := it.(*ptx.Func); ok {
			it = t.copier.Function(f)
		}
		out.Items = append(out.Items, it)
		if i != last {
			continue
		}
		// Copies may call each other, so all are declared first.
		for _, f := range t.copies {
			declared := *f
			declared.Body = nil
			out.Items = append(out.Items, &declared)
		}
		for _, f := range slices.Concat(t.copies, t.made) {
			out.Items = append(out.Items, f)
		}
	}
	return &out
}
