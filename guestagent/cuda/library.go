package cuda

import (
	"maps"
	"slices"
	"sync"
)

// library is a CUlibrary: code that is loaded into each context in which it is used.
type library struct {
	d      *Driver
	handle Handle
	image  []byte
	names  []string // of its kernels, if it is PTX

	mu      sync.Mutex
	kernels map[string]*kernel
	modules map[*Context]*module
}

// kernel is a CUkernel: a kernel of a library, in any context. A program may use it as a CUfunction.
type kernel struct {
	l      *library
	handle Handle
	name   string

	mu         sync.Mutex
	attributes map[uint32]int32 // that the program set
}

// loadLibrary makes a library of code, of which the program may free its own copy.
func (c *Call) loadLibrary(out *Handle, image []byte) Result {
	l := &library{d: c.d, image: slices.Clone(image), kernels: map[string]*kernel{}, modules: map[*Context]*module{}}
	var r Result
	if l.names, r = entryNames(l.image); r != Success {
		return r
	}
	if l.handle = c.d.objects.add(l); l.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, l.handle)
	return Success
}

// LibraryLoadData is cuLibraryLoadData.
func (c *Call) LibraryLoadData(out *Handle, code Pointer, options *uint32, values *Pointer, n uint32, _ *uint32, _ *Pointer, _ uint32) Result {
	log, r := newJITLog(n, options, values)
	if r != Success {
		return r
	}
	defer log.finish()
	if out == nil {
		return ErrorInvalidValue
	}
	image, r := c.d.image(code)
	if r != Success {
		return r
	}
	return c.loadLibrary(out, image)
}

// LibraryLoadFromFile is cuLibraryLoadFromFile.
func (c *Call) LibraryLoadFromFile(out *Handle, path *byte, options *uint32, values *Pointer, n uint32, _ *uint32, _ *Pointer, _ uint32) Result {
	log, r := newJITLog(n, options, values)
	if r != Success {
		return r
	}
	defer log.finish()
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
	return c.loadLibrary(out, b)
}

// LibraryUnload is cuLibraryUnload.
func (c *Call) LibraryUnload(h Handle) Result {
	l := get[library](&c.d.objects, h)
	if l == nil || !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kernels {
		c.d.objects.remove(k.handle)
	}
	modules := slices.Collect(maps.Values(l.modules))
	return c.unloadAll(modules)
}

// unloadAll unloads modules one after the other.
func (c *Call) unloadAll(all []*module) Result {
	for i, m := range all {
		if m.x.gone.Load() {
			continue
		}
		if r := c.ModuleUnload(m.handle); r == again {
			f := c.resume
			return c.later(func() Result { return c.chain(f, func() Result { return c.unloadAll(all[i+1:]) }) })
		}
	}
	return Success
}

// chain calls f, if need be again and again, and then next.
func (c *Call) chain(f, next func() Result) Result {
	if r := f(); r == again {
		f := c.resume
		return c.later(func() Result { return c.chain(f, next) })
	}
	return next()
}

// in returns the library's module in a context, which it loads at its first use there.
func (l *library) in(x *Context) (*module, Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.modules[x]; m != nil {
		return m, Success
	}
	maps.DeleteFunc(l.modules, func(x *Context, _ *module) bool { return x.gone.Load() })
	m, r := x.load(l.image, &jitLog{})
	if r == Success {
		l.modules[x] = m
	}
	return m, r
}

func (c *Call) library(h Handle) (*library, Result) {
	if l := get[library](&c.d.objects, h); l != nil {
		return l, Success
	}
	return nil, ErrorInvalidHandle
}

// LibraryGetModule is cuLibraryGetModule.
func (c *Call) LibraryGetModule(out *Handle, h Handle) Result {
	l, r := c.library(h)
	if r != Success {
		return r
	}
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	m, r := l.in(x)
	if r == Success {
		put(out, m.handle)
	}
	return r
}

// kernel returns a kernel of the library by its name.
func (l *library) kernel(name string) (*kernel, Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kernels[name]; k != nil {
		return k, Success
	}
	if l.names != nil && !slices.Contains(l.names, name) {
		return nil, ErrorNotFound
	}
	k := &kernel{l: l, name: name, attributes: map[uint32]int32{}}
	if k.handle = l.d.objects.add(k); k.handle == 0 {
		return nil, ErrorOutOfMemory
	}
	l.kernels[name] = k
	return k, Success
}

// LibraryGetKernel is cuLibraryGetKernel.
func (c *Call) LibraryGetKernel(out *Handle, h Handle, name *byte) Result {
	l, r := c.library(h)
	if r != Success {
		return r
	}
	s, ok := text(name)
	if !ok || out == nil {
		return ErrorInvalidValue
	}
	k, r := l.kernel(s)
	if r == Success {
		put(out, k.handle)
	}
	return r
}

// LibraryGetKernelCount is cuLibraryGetKernelCount.
func (c *Call) LibraryGetKernelCount(count *uint32, h Handle) Result {
	l, r := c.library(h)
	if r != Success {
		return r
	}
	if count == nil {
		return ErrorInvalidValue
	}
	if l.names == nil {
		return ErrorNotSupported
	}
	put(count, uint32(len(l.names)))
	return Success
}

// LibraryEnumerateKernels is cuLibraryEnumerateKernels.
func (c *Call) LibraryEnumerateKernels(out *Handle, n uint32, h Handle) Result {
	l, r := c.library(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	if l.names == nil {
		return ErrorNotSupported
	}
	to := array(out, uint64(n))
	for i, name := range l.names[:min(len(l.names), int(n))] {
		k, r := l.kernel(name)
		if r != Success {
			return r
		}
		to[i] = k.handle
	}
	return Success
}

// LibraryGetGlobal is cuLibraryGetGlobal.
func (c *Call) LibraryGetGlobal(out, size *uint64, h Handle, name *byte) Result {
	l, r := c.library(h)
	if r != Success {
		return r
	}
	x, r := c.context()
	if r != Success {
		return r
	}
	m, r := l.in(x)
	if r != Success {
		return r
	}
	return c.ModuleGetGlobalV2(out, size, m.handle, name)
}

// LibraryGetManaged is cuLibraryGetManaged: no variable is in managed memory.
func (c *Call) LibraryGetManaged(_, _ *uint64, h Handle, name *byte) Result {
	if _, r := c.library(h); r != Success {
		return r
	}
	if _, ok := text(name); !ok {
		return ErrorInvalidValue
	}
	return ErrorNotFound
}

// LibraryGetUnifiedFunction is cuLibraryGetUnifiedFunction: no code is for host and device alike.
func (c *Call) LibraryGetUnifiedFunction(_ *Pointer, h Handle, symbol *byte) Result {
	if _, r := c.library(h); r != Success {
		return r
	}
	if _, ok := text(symbol); !ok {
		return ErrorInvalidValue
	}
	return ErrorNotFound
}

func (c *Call) kernel(h Handle) (*kernel, Result) {
	if k := get[kernel](&c.d.objects, h); k != nil {
		return k, Success
	}
	return nil, ErrorInvalidHandle
}

// in returns the kernel's function in a context.
func (k *kernel) in(x *Context) (*function, Result) {
	m, r := k.l.in(x)
	if r != Success {
		return nil, r
	}
	f, r := m.function(k.name)
	if r != Success {
		return nil, r
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for attribute, v := range k.attributes {
		if r := f.set(attribute, v); r != Success {
			return nil, r
		}
	}
	return f, Success
}

// kernelFunction returns the function of a CUkernel in the current context.
func (c *Call) kernelFunction(h Handle) (*function, Result) {
	k, r := c.kernel(h)
	if r != Success {
		return nil, r
	}
	x, r := c.context()
	if r != Success {
		return nil, r
	}
	return k.in(x)
}

// KernelGetFunction is cuKernelGetFunction.
func (c *Call) KernelGetFunction(out *Handle, h Handle) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	f, r := c.kernelFunction(h)
	if r == Success {
		put(out, f.handle)
	}
	return r
}

// KernelGetLibrary is cuKernelGetLibrary.
func (c *Call) KernelGetLibrary(out *Handle, h Handle) Result {
	k, r := c.kernel(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, k.l.handle)
	return Success
}

// KernelGetName is cuKernelGetName.
func (c *Call) KernelGetName(out *Pointer, h Handle) Result {
	k, r := c.kernel(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, c.d.names.of(k.name))
	return Success
}

// KernelGetAttribute is cuKernelGetAttribute.
func (c *Call) KernelGetAttribute(out *int32, attribute uint32, h Handle, dev int32) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	if _, r := c.kernel(h); r != Success {
		return r
	}
	return c.FuncGetAttribute(out, attribute, h)
}

// KernelSetAttribute is cuKernelSetAttribute. It holds for every context.
func (c *Call) KernelSetAttribute(attribute uint32, v int32, h Handle, dev int32) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	k, r := c.kernel(h)
	if r != Success {
		return r
	}
	f, r := c.kernelFunction(h)
	if r != Success {
		return r
	}
	if r := f.set(attribute, v); r != Success {
		return r
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attributes[attribute] = v
	return Success
}

// KernelSetCacheConfig is cuKernelSetCacheConfig, a hint.
func (c *Call) KernelSetCacheConfig(h Handle, config uint32, dev int32) Result {
	if _, r := c.kernel(h); r != Success {
		return r
	}
	if dev != 0 {
		return ErrorInvalidDevice
	}
	if config > 3 {
		return ErrorInvalidValue
	}
	return Success
}

// KernelGetParamInfo is cuKernelGetParamInfo.
func (c *Call) KernelGetParamInfo(h Handle, i uint64, at, size *uint64) Result {
	if _, r := c.kernel(h); r != Success {
		return r
	}
	return c.FuncGetParamInfo(h, i, at, size)
}

// KernelGetParamCount is cuKernelGetParamCount.
func (c *Call) KernelGetParamCount(h Handle, count *uint64) Result {
	if _, r := c.kernel(h); r != Success {
		return r
	}
	return c.FuncGetParamCount(h, count)
}
