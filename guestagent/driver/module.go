package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"vgpud/guestagent/preempt"
	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// Module is loaded code. It lives as long as its context, or until Unload.
type Module struct {
	ctx    *Context
	handle uint64
	forms  *variants
	// refused is why kernels can't be launched that the GPU can't execute, by name.
	refused map[string]string

	mu        sync.Mutex
	functions map[string]*Function
}

// logBytes bounds what a compiler may say about a module.
const logBytes = 16 << 10

// LoadModule loads PTX, or machine code where the device takes it. An error of the
// compiler is an [*Error] with its messages as Detail.
//
// Where the context makes kernels preemptible ([ContextOptions]), forms of them that
// leave the GPU when asked are loaded along; [Function.Preemption] tells which. What
// can't be made, or the host does not take, is left out.
//
// A kernel that the GPU can't execute, since it uses textures for example, does not
// keep the others from being loaded: launching it is an error.
func (c *Context) LoadModule(ctx context.Context, image []byte) (*Module, error) {
	v := c.forms(ctx, image)
	m := &Module{ctx: c, forms: v, functions: map[string]*Function{}}
	if v.image != nil {
		handle, refused, err := c.load(ctx, v.image)
		v.image = nil
		if err == nil {
			m.handle, m.refused = handle, refused
			return m, nil
		}
		failed, ok := errors.AsType[*Error](err)
		if !ok || failed.Status.Poisons() {
			return nil, fmt.Errorf("load a module of %d bytes: %w", len(image), err)
		}
		m.forms = &variants{why: Preemption{Reason: reasonRefused, Detail: failed.Error()}}
	}
	var err error
	if m.handle, m.refused, err = c.load(ctx, image); err != nil {
		return nil, fmt.Errorf("load a module of %d bytes: %w", len(image), err)
	}
	return m, nil
}

// forms makes forms of a module's kernels, if that is wanted.
func (c *Context) forms(ctx context.Context, image []byte) *variants {
	p := c.preempt
	if p.why.Reason != "" {
		return &variants{why: p.why}
	}
	if err := p.identify(ctx, c); err != nil {
		return &variants{why: Preemption{Reason: reasonUnknown, Detail: err.Error()}}
	}
	return p.variants(ctx, image, int(c.dev.staging.size/2)-logBytes)
}

// load loads an image as it is. It returns why kernels can't be launched, by name.
func (c *Context) load(ctx context.Context, image []byte) (handle uint64, refused map[string]string, err error) {
	ch := c.Own()
	w, err := ch.window(ctx, uint64(len(image))+logBytes)
	if err != nil {
		return 0, nil, err
	}
	p := Pending{lent: true}
	defer func() { ch.leave(&p, w) }()
	if _, err := ch.dev.fill(w, image); err != nil {
		return 0, nil, err
	}
	log := w.Offset + uint64(len(image))
	var e abi.Entry
	abi.Module{
		Image: abi.Window{Offset: w.Offset, Size: uint64(len(image))},
		Log:   log, LogBytes: logBytes,
	}.Encode(&e)
	err = ch.enqueue(ctx, &p, &e, abi.Header{Op: abi.OpModuleLoad}, nil)
	if err == nil {
		err = p.Wait(ctx)
	}
	said := ""
	if p.Done() {
		if n := p.value()[1]; n > 0 && n <= logBytes {
			text := make([]byte, n)
			if ch.dev.drain(text, abi.Window{Offset: log, Size: n}) == nil {
				said = strings.TrimRight(string(text), "\x00\n")
			}
		}
	}
	if failed := (*Error)(nil); errors.As(err, &failed) && failed.Detail == "" {
		failed.Detail = said
	}
	if err != nil {
		return 0, nil, err
	}
	return p.value()[0], refusals(said), nil
}

// refusals reads what is said of a module that was loaded: a line for each kernel that
// can't be launched, which begins with "kernel NAME, ".
func refusals(said string) map[string]string {
	var why map[string]string
	for line := range strings.Lines(said) {
		line = strings.TrimSuffix(line, "\n")
		rest, ok := strings.CutPrefix(line, "kernel ")
		if name, _, named := strings.Cut(rest, ", "); ok && named {
			if why == nil {
				why = map[string]string{}
			}
			why[name] = line
		}
	}
	return why
}

// Unload unloads the module; its functions must not be used after.
func (m *Module) Unload(ctx context.Context) error {
	var e abi.Entry
	abi.Handle{Handle: m.handle}.Encode(&e)
	if _, err := m.ctx.Own().call(ctx, &e, abi.OpModuleUnload, 0, nil); err != nil {
		return fmt.Errorf("unload a module: %w", err)
	}
	return nil
}

// lookup asks for something by name.
func (m *Module) lookup(ctx context.Context, op abi.Opcode, name string) ([3]uint64, error) {
	ch := m.ctx.Own()
	l := abi.Lookup{Module: m.handle, NameBytes: uint32(len(name))}
	var e abi.Entry
	if ch.inline(len(name)) {
		l.Encode(&e)
		return ch.call(ctx, &e, op, 0, []byte(name))
	}
	w, err := ch.window(ctx, uint64(len(name)))
	if err != nil {
		return [3]uint64{}, err
	}
	p := Pending{lent: true}
	defer func() { ch.leave(&p, w) }()
	if _, err := ch.dev.fill(w, []byte(name)); err != nil {
		return [3]uint64{}, err
	}
	l.Name = w.Offset
	l.Encode(&e)
	if err := ch.enqueue(ctx, &p, &e, abi.Header{Op: op}, nil); err != nil {
		return [3]uint64{}, err
	}
	if err := p.Wait(ctx); err != nil {
		return [3]uint64{}, err
	}
	return p.value(), nil
}

// inline reports whether n bytes of data can travel in the ring.
func (ch *Channel) inline(n int) bool {
	return n > 0 && ch.dev.info.Features&abi.FeatureInline != 0 && abi.MoreFor(n) <= abi.MaxMore
}

// Global returns the address and size of a module's global variable.
func (m *Module) Global(ctx context.Context, name string) (Ptr, uint64, error) {
	v, err := m.lookup(ctx, abi.OpGlobal, name)
	if err != nil {
		return 0, 0, fmt.Errorf("global %q: %w", name, err)
	}
	return Ptr(v[0]), v[1], nil
}

// Param is one parameter of a function: its place in the parameter space.
type Param struct{ Offset, Size int }

// Function is a kernel of a module.
type Function struct {
	module *Module
	name   string
	handle uint64

	paramBytes int
	count      int
	params     []Param // nil where the device does not tell

	refused string // why it can't be launched, where the GPU can't execute it

	forms *forms     // nil where there is only the original
	why   Preemption // why, then
}

// maxParams bounds what a host can make us ask for.
const maxParams = 4096

// Function looks a kernel up by its name.
func (m *Module) Function(ctx context.Context, name string) (*Function, error) {
	m.mu.Lock()
	f := m.functions[name]
	m.mu.Unlock()
	if f != nil {
		return f, nil
	}
	v, err := m.lookup(ctx, abi.OpFunction, name)
	if err != nil {
		return nil, fmt.Errorf("function %q: %w", name, err)
	}
	f = &Function{module: m, name: name, handle: v[0], count: int(v[1]), paramBytes: int(v[2]), refused: m.refused[name]}
	if f.count < 0 || f.count > maxParams || f.paramBytes < 0 || f.paramBytes > 1<<16 {
		return nil, fmt.Errorf("function %q: %d parameters of %d bytes make no sense", name, v[1], v[2])
	}
	if m.ctx.dev.info.Features&abi.FeatureFunctions != 0 {
		if f.params, err = f.layout(ctx); err != nil {
			return nil, fmt.Errorf("function %q: its parameters: %w", name, err)
		}
	}
	if err := m.findForms(ctx, f); err != nil {
		return nil, fmt.Errorf("function %q: its forms: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first := m.functions[name]; first != nil {
		return first, nil
	}
	m.functions[name] = f
	return f, nil
}

// findForms looks up the entries of a kernel's forms.
func (m *Module) findForms(ctx context.Context, f *Function) error {
	r := m.forms.kernels[f.name]
	if r == nil {
		f.why = m.forms.why
		return nil
	}
	p := m.ctx.preempt
	k := &forms{ctx: m.ctx, original: f.handle, waits: r.waits, key: r.key, offered: r.offered, before: r.record, info: Preemption{Kernel: f.name, Forms: r.made, Reason: r.reason, Detail: r.detail}}
	for _, form := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
		if r.made&form == 0 {
			continue
		}
		v, err := m.lookup(ctx, abi.OpFunction, preempt.EntryName(f.name, form))
		if err != nil {
			return err
		}
		k.handles[bit(form)] = v[0]
	}
	f.why = k.info
	if r.made != 0 {
		k.tuner = tune.New(p.opts.Wanted, r.made)
		k.tuner.Recall(r.record)
		f.forms = k
	} else if r.short {
		f.forms = k
	}
	p.begin()
	p.note(k)
	return nil
}

// layout asks for all parameters at once.
func (f *Function) layout(ctx context.Context) ([]Param, error) {
	ch := f.module.ctx.Own()
	asked := make([]Pending, f.count)
	for i := range asked {
		var e abi.Entry
		abi.Query{Handle: f.handle, Key: uint32(i)}.Encode(&e)
		if err := ch.enqueue(ctx, &asked[i], &e, abi.Header{Op: abi.OpFunctionParam}, nil); err != nil {
			return nil, err
		}
	}
	params := make([]Param, 0, f.count)
	for i := range asked {
		if err := asked[i].Wait(ctx); err != nil {
			return nil, err
		}
		v := asked[i].value()
		if v[0] > uint64(f.paramBytes) || v[1] > uint64(f.paramBytes)-v[0] {
			return nil, fmt.Errorf("parameter %d of %d bytes at %d in %d bytes", i, v[1], v[0], f.paramBytes)
		}
		params = append(params, Param{Offset: int(v[0]), Size: int(v[1])})
	}
	return params, nil
}

// Name returns the kernel's name.
func (f *Function) Name() string { return f.name }

// ParamBytes returns the size of the kernel's parameter space.
func (f *Function) ParamBytes() int { return f.paramBytes }

// Params returns where the kernel's parameters lie, or nil where the device does not
// tell.
func (f *Function) Params() []Param { return slices.Clone(f.params) }

// Attribute reads an attribute of the kernel, by the numbers of package abi.
func (f *Function) Attribute(ctx context.Context, attribute uint32) (uint64, error) {
	var e abi.Entry
	abi.Query{Handle: f.handle, Key: attribute}.Encode(&e)
	v, err := f.module.ctx.Own().call(ctx, &e, abi.OpFunctionAttribute, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("function %q: attribute %d: %w", f.name, attribute, err)
	}
	return v[0], nil
}

// Occupancy returns how many blocks of the kernel an SM holds at once.
func (f *Function) Occupancy(ctx context.Context, blockThreads int, sharedBytes uint64) (int, error) {
	var e abi.Entry
	abi.Occupancy{Function: f.handle, BlockThreads: uint32(blockThreads), SharedBytes: sharedBytes}.Encode(&e)
	v, err := f.module.ctx.Own().call(ctx, &e, abi.OpOccupancy, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("function %q: occupancy: %w", f.name, err)
	}
	return int(v[0]), nil
}
