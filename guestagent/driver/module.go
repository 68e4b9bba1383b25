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

// Module is loaded code. It lives until Unload or until its context ends.
type Module struct {
	ctx    *Context
	handle uint64
	forms  *variants
	// refused holds, by name, why kernels that the GPU can't execute can't be launched.
	refused map[string]string

	mu        sync.Mutex
	functions map[string]*Function
}

// logBytes bounds the compiler's messages about a module.
const logBytes = 16 << 10

// LoadModule loads PTX, or machine code if the device takes it. An error of the compiler is an
// [*Error] with its messages in Detail.
//
// If the context makes kernels preemptible ([ContextOptions]), their preemptible forms are loaded
// too; [Function.Preemption] describes them. Forms that can't be made, or that the host refuses,
// are left out.
//
// A kernel that the GPU can't execute, for example because it uses clusters, does not keep the
// others from being loaded: only launching it is an error.
func (c *Context) LoadModule(ctx context.Context, image []byte) (*Module, error) {
	v := c.makeForms(ctx, image)
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
		m.forms = &variants{unlisted: Preemption{Reason: reasonRefused, Detail: failed.Error()}}
	}
	var err error
	if m.handle, m.refused, err = c.load(ctx, image); err != nil {
		return nil, fmt.Errorf("load a module of %d bytes: %w", len(image), err)
	}
	return m, nil
}

// makeForms makes the forms of a module's kernels, if the context asks for them.
func (c *Context) makeForms(ctx context.Context, image []byte) *variants {
	p := c.preempt
	if p.disabled.Reason != "" {
		return &variants{unlisted: p.disabled}
	}
	if err := p.identify(ctx, c); err != nil {
		return &variants{unlisted: Preemption{Reason: reasonUnknown, Detail: err.Error()}}
	}
	return p.variants(ctx, image, int(c.dev.staging.size/2)-logBytes)
}

// load loads an image as it is. refused holds, by name, why kernels can't be launched.
func (c *Context) load(ctx context.Context, image []byte) (handle uint64, refused map[string]string, err error) {
	ch, dev := c.Own(), c.dev
	err = ch.withWindow(ctx, uint64(len(image))+logBytes, func(p *Pending, w abi.Window) error {
		if err := dev.copyShared(dev.bytes(w), image); err != nil {
			return err
		}
		log := w.Offset + uint64(len(image))
		err := ch.run(ctx, p, abi.OpModuleLoad, abi.Module{
			Image: abi.Window{Offset: w.Offset, Size: uint64(len(image))},
			Log:   log, LogBytes: logBytes,
		}, nil)
		messages := ""
		if p.Done() {
			if n := p.value()[1]; n > 0 && n <= logBytes {
				text := make([]byte, n)
				if dev.copyShared(text, dev.bytes(abi.Window{Offset: log, Size: n})) == nil {
					messages = strings.TrimRight(string(text), "\x00\n")
				}
			}
		}
		if failed := (*Error)(nil); errors.As(err, &failed) && failed.Detail == "" {
			failed.Detail = messages
		}
		if err == nil {
			handle, refused = p.value()[0], refusals(messages)
		}
		return err
	})
	return handle, refused, err
}

// refusals parses the messages about a module that was loaded: a line for each kernel that can't be
// launched, which begins with "kernel NAME, ".
func refusals(messages string) map[string]string {
	var why map[string]string
	for line := range strings.Lines(messages) {

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

// Unload unloads the module. Its functions must not be used afterwards.
func (m *Module) Unload(ctx context.Context) error {
	if _, err := m.ctx.Own().call(ctx, abi.OpModuleUnload, abi.Handle{Handle: m.handle}); err != nil {
		return fmt.Errorf("unload a module: %w", err)
	}
	return nil
}

// lookup finds a function or variable by name.
func (m *Module) lookup(ctx context.Context, op abi.Opcode, name string) (v [3]uint64, err error) {
	ch := m.ctx.Own()
	l := abi.Lookup{Module: m.handle, NameBytes: uint32(len(name))}
	if ch.inline(len(name)) {
		var p Pending
		if err := ch.run(ctx, &p, op, l, []byte(name)); err != nil {
			return v, err
		}
		return p.value(), nil
	}
	err = ch.withWindow(ctx, uint64(len(name)), func(p *Pending, w abi.Window) error {
		if err := ch.dev.copyShared(ch.dev.bytes(w), []byte(name)); err != nil {
			return err
		}
		l.Name = w.Offset
		if err := ch.run(ctx, p, op, l, nil); err != nil {
			return err
		}
		v = p.value()
		return nil
	})
	return v, err
}

// inline reports whether n bytes of data fit in the ring itself.
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

// Param is the place of a function's parameter in the parameter space.
type Param struct{ Offset, Size int }

// Function is a kernel of a module.
type Function struct {
	module *Module
	name   string
	handle uint64

	paramBytes int
	count      int
	params     []Param // nil if the device does not report them

	refused string // why the GPU can't execute it, or ""

	forms   *forms     // nil if the kernel has only the original
	noForms Preemption // why, in that case
}

// maxParams bounds how many parameters a host can make the driver ask for.
const maxParams = 4096

// Function looks up a kernel by name.
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
		f.noForms = m.forms.unlisted
		return nil
	}
	p := m.ctx.preempt
	k := &forms{ctx: m.ctx, original: f.handle, ordered: r.ordered, key: r.key, offered: r.offered, recalled: r.record, info: Preemption{Kernel: f.name, Forms: r.made, Reason: r.reason, Detail: r.detail}}
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
	f.noForms = k.info
	if r.made != 0 {
		k.tuner = tune.New(p.wanted(), r.made)
		k.tuner.Recall(r.record)
		f.forms = k
	} else if r.short {
		f.forms = k
	}
	p.startFlusher(m.ctx.dev.bus)
	p.markDirty(k)
	return nil
}

// layout asks for all parameters, without waiting for each in turn.
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

// Params returns the places of the kernel's parameters, or nil if the device does not report them.
func (f *Function) Params() []Param { return slices.Clone(f.params) }

// Attribute returns an attribute of the kernel. Package abi has the numbers, which are CUDA's.
func (f *Function) Attribute(ctx context.Context, attribute uint32) (uint64, error) {
	v, err := f.module.ctx.Own().call(ctx, abi.OpFunctionAttribute, abi.Query{Handle: f.handle, Key: attribute})
	if err != nil {
		return 0, fmt.Errorf("function %q: attribute %d: %w", f.name, attribute, err)
	}
	return v[0], nil
}

// Occupancy returns how many blocks of the kernel an SM holds at once.
func (f *Function) Occupancy(ctx context.Context, blockThreads int, sharedBytes uint64) (int, error) {
	v, err := f.module.ctx.Own().call(ctx, abi.OpOccupancy, abi.Occupancy{Function: f.handle, BlockThreads: uint32(blockThreads), SharedBytes: sharedBytes})
	if err != nil {
		return 0, fmt.Errorf("function %q: occupancy: %w", f.name, err)
	}
	return int(v[0]), nil
}
