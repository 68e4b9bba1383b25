package cuda

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/fatbin"
)

// module is a CUmodule.
type module struct {
	x      *Context
	handle Handle
	m      *driver.Module
	names  func() []string // of its kernels; nil for machine code
	// image is what is loaded when the context's task begins, and failed the result of that, which
	// every use of the module has.
	image  []byte
	failed Result

	// Guarded by Context.mu.
	functions map[string]*function
	globals   map[string]global
	// references are the texture and surface references that the program asked for; unbound says
	// that one of them does not name what it should.
	references map[string]*reference
	unbound    atomic.Bool
	// hasReference reports whether the module has such a variable; nil for machine code.
	hasReference func(name string, surface bool) bool
}

// global is a module's variable.
type global struct{ address, bytes uint64 }

// forget makes the handles of a module and its functions invalid; x.mu is held.
func (m *module) forget() {
	o := &m.x.d.objects
	for _, f := range m.functions {
		o.remove(f.handle)
	}
	for _, v := range m.references {
		o.remove(v.handle)
		if v.bound != nil {
			m.x.stale = append(m.x.stale, v.bound)
		}
	}
	o.remove(m.handle)
	delete(m.x.modules, m)
}

// mostImage bounds an image.
const mostImage = 1 << 30

// image returns the code that a program passed: PTX, or machine code for the GPU. The bytes are the
// program's.
func (d *Driver) image(p Pointer) ([]byte, Result) {
	if p == nil || access(p, 4) != nil {
		return nil, ErrorInvalidValue
	}
	switch head := hostBytes(p, 4); fatbin.Detect(head) {
	case fatbin.FormatPTX:
		n := length(p, mostImage)
		if n == mostImage {
			return nil, ErrorInvalidImage
		}
		return hostBytes(p, uint64(n)), Success
	case fatbin.FormatWrapper:
		if access(p, 24) != nil {
			return nil, ErrorInvalidImage
		}
		w, err := fatbin.ParseWrapper(hostBytes(p, 24))
		if err != nil || w.Data == 0 || access(pointerTo(w.Data), 4) != nil ||
			fatbin.Detect(hostBytes(pointerTo(w.Data), 4)) != fatbin.FormatContainer {
			return nil, ErrorInvalidImage
		}
		return d.image(pointerTo(w.Data))
	case fatbin.FormatContainer, fatbin.FormatELF:
		const head = 64
		if access(p, head) != nil {
			return nil, ErrorInvalidImage
		}
		n, err := fatbin.Size(hostBytes(p, head))
		if err != nil || n > mostImage || access(p, uint64(n)) != nil {
			return nil, ErrorInvalidImage
		}
		return d.choose(hostBytes(p, uint64(n)))
	}
	return nil, ErrorInvalidImage
}

// choose returns what of an image with a length the GPU is to have.
func (d *Driver) choose(b []byte) ([]byte, Result) {
	if len(b) < 4 {
		return nil, ErrorInvalidImage
	}
	switch fatbin.Detect(b) {
	case fatbin.FormatPTX:
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return b, Success
	case fatbin.FormatELF:
		return b, Success
	case fatbin.FormatContainer:
		container, err := fatbin.Parse(b)
		if err != nil {
			return nil, resultOnly(err)
		}
		major, r := d.attribute(DeviceAttributeComputeCapabilityMajor)
		if r != Success {
			return nil, r
		}
		minor, r := d.attribute(DeviceAttributeComputeCapabilityMinor)
		if r != Success {
			return nil, r
		}
		_, image, err := container.Choose(fatbin.Capability{Major: int(major), Minor: int(minor)}, d.takesCode())
		if err != nil {
			return nil, resultOnly(err)
		}
		return image, Success
	}
	return nil, ErrorInvalidImage
}

// load loads code into a context. log gets the compiler's messages.
func (x *Context) load(image []byte, log *jitLog) (*module, Result) {
	dm, err := x.gpu.LoadModule(context.Background(), image)
	if err != nil {
		if e, ok := errors.AsType[*driver.Error](err); ok {
			log.failed(e.Detail)
		}
		return nil, x.fail(err)
	}
	m := x.newModule(image)
	m.m = dm
	if m.handle = x.d.objects.add(m); m.handle == 0 {
		_ = dm.Unload(context.Background())
		return nil, ErrorOutOfMemory
	}
	x.mu.Lock()
	x.modules[m] = struct{}{}
	x.mu.Unlock()
	return m, Success
}

// newModule returns a module without a handle, which is not loaded.
func (x *Context) newModule(image []byte) *module {
	// Of machine code nothing is known.
	if bytes.Contains(image, []byte("vprintf")) || bytes.HasPrefix(image, []byte("\x7fELF")) {
		x.prints.Store(true)
	}
	m := &module{x: x, functions: map[string]*function{}, globals: map[string]global{}}
	if fatbin.Detect(image) == fatbin.FormatPTX {
		kept := slices.Clone(image)
		m.names = sync.OnceValue(func() []string {
			names, _ := entryNames(kept)
			return names
		})
		variables := sync.OnceValue(func() map[string]bool { return referenceNames(kept) })
		m.hasReference = func(name string, surface bool) bool {
			is, ok := variables()[name]
			return ok && is == surface
		}
	}
	return m
}

// loadFor loads code for a call, or records that.
func (c *Call) loadFor(x *Context, out *Handle, image []byte, log *jitLog) Result {
	if x.pending() {
		return c.recorded(x, func(t *task) error {
			m, err := t.recordModule(image, log)
			if err == nil {
				put(out, m.handle)
			}
			return err
		}, func() Result { return c.loadFor(x, out, image, log) })
	}
	m, r := x.load(image, log)
	if r == Success {
		put(out, m.handle)
	}
	return r
}

// loadModule loads an image that a program passed.
func (c *Call) loadModule(out *Handle, image Pointer, log *jitLog) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	b, r := c.d.image(image)
	if r != Success {
		return r
	}
	return c.loadFor(x, out, b, log)
}

// ModuleLoadData is cuModuleLoadData.
func (c *Call) ModuleLoadData(out *Handle, image Pointer) Result {
	return c.loadModule(out, image, &jitLog{})
}

// ModuleLoadFatBinary is cuModuleLoadFatBinary.
func (c *Call) ModuleLoadFatBinary(out *Handle, image Pointer) Result {
	return c.loadModule(out, image, &jitLog{})
}

// ModuleLoadDataEx is cuModuleLoadDataEx.
func (c *Call) ModuleLoadDataEx(out *Handle, image Pointer, n uint32, options *uint32, values *Pointer) Result {
	log, r := newJITLog(n, options, values)
	if r != Success {
		return r
	}
	defer log.finish()
	return c.loadModule(out, image, log)
}

// ModuleLoad is cuModuleLoad.
func (c *Call) ModuleLoad(out *Handle, path *byte) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	name, ok := text(path)
	if !ok || out == nil {
		return ErrorInvalidValue
	}
	b, r := readImage(name)
	if r != Success {
		return r
	}
	if b, r = c.d.choose(b); r != Success {
		return r
	}
	return c.loadFor(x, out, b, &jitLog{})
}

func readImage(path string) ([]byte, Result) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, ErrorFileNotFound
	case err != nil:
		return nil, ErrorOperatingSystem
	case len(b) > mostImage:
		return nil, ErrorInvalidImage
	}
	return b, Success
}

// module returns a module by its handle.
func (c *Call) module(h Handle) (*module, Result) {
	m := get[module](&c.d.objects, h)
	if m == nil {
		return nil, ErrorInvalidHandle
	}
	if r := Result(m.x.sticky.Load()); r != Success {
		return m, r
	}
	if m.x.pending() { // who begins the task may be about to learn it
		return m, Success
	}
	return m, m.failed
}

// ModuleUnload is cuModuleUnload.
func (c *Call) ModuleUnload(h Handle) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	if m.x.pending() {
		return c.recorded(m.x, func(t *task) error {
			t.forgetModule(m)
			return nil
		}, func() Result { return c.ModuleUnload(h) })
	}
	m.x.mu.Lock()
	m.forget()
	m.x.mu.Unlock()
	// Its kernels may be running.
	return c.waitFor(m.x.everything(), func() Result {
		m.x.print(context.Background())
		if err := m.m.Unload(context.Background()); err != nil {
			return m.x.fail(err)
		}
		return Success
	})
}

// everything returns the points at which all commands so far have ended.
func (x *Context) everything() (goals []point) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ch := range x.channels {
		goals = append(goals, point{ch: ch, sent: ch.sent})
	}
	for s := range x.calling {
		if p, waits := s.calling(); waits {
			goals = append(goals, p)
		}
	}
	return goals
}

// ModuleGetGlobalV2 is cuModuleGetGlobal_v2.
func (c *Call) ModuleGetGlobalV2(out, size *uint64, h Handle, name *byte) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	s, ok := text(name)
	if !ok || out == nil && size == nil {
		return ErrorInvalidValue
	}
	g, r := m.global(s)
	if r != Success {
		return r
	}
	if out != nil {
		put(out, g.address)
	}
	if size != nil {
		put(size, g.bytes)
	}
	return Success
}

func (m *module) global(name string) (global, Result) {
	m.x.mu.Lock()
	g, ok := m.globals[name]
	m.x.mu.Unlock()
	if ok {
		return g, Success
	}
	p, n, err := m.m.Global(context.Background(), name)
	if err != nil {
		return g, m.x.fail(err)
	}
	g = global{uint64(p), n}
	m.x.mu.Lock()
	m.globals[name] = g
	m.x.mu.Unlock()
	return g, Success
}

// ModuleGetLoadingMode is cuModuleGetLoadingMode: modules are loaded when they are asked for.
func (c *Call) ModuleGetLoadingMode(mode *uint32) Result {
	if mode == nil {
		return ErrorInvalidValue
	}
	put(mode, 1) // CU_MODULE_EAGER_LOADING
	return Success
}

// takesCode reports whether the device takes machine code.
func (d *Driver) takesCode() bool { return takesCode(d.gpu.Info().Features) }
