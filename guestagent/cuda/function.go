package cuda

import (
	"context"
	"sync/atomic"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// function is a CUfunction.
type function struct {
	m      *module
	handle Handle
	name   string
	f      *driver.Function
	params []driver.Param
	bytes  int    // of the parameter space
	failed Result // see module

	maxThreads, staticShared uint32
	maxDynamic               atomic.Uint32 // the most dynamic shared memory of a launch
	attributes               [FuncAttributeMax]atomic.Int32
	legacy                   legacyLaunch // of CUDA 3's functions; guarded by Context.mu
}

// legacyLaunch is what CUDA 3's functions set for the next cuLaunch.
type legacyLaunch struct {
	block  [3]uint32
	shared uint32
	params []byte
}

// usualShared is how much shared memory a block may have unless more is asked for.
const usualShared = 48 << 10

// function finds a kernel by its name.
func (m *module) function(name string) (*function, Result) {
	x := m.x
	x.mu.Lock()
	f := m.functions[name]
	x.mu.Unlock()
	if f != nil {
		return f, Success
	}
	f = newFunction(m, name)
	if err := f.find(context.Background(), m.m); err != nil {
		return nil, x.fail(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if first := m.functions[name]; first != nil {
		return first, Success
	}
	if f.handle = x.d.objects.add(f); f.handle == 0 {
		return nil, ErrorOutOfMemory
	}
	m.functions[name] = f
	return f, Success
}

func newFunction(m *module, name string) *function {
	return &function{m: m, name: name, legacy: legacyLaunch{block: [3]uint32{1, 1, 1}}}
}

// find learns what the device knows of the function.
func (f *function) find(ctx context.Context, m *driver.Module) error {
	df, err := m.Function(ctx, f.name)
	if err != nil {
		return err
	}
	f.f, f.params, f.bytes = df, df.Params(), df.ParamBytes()
	for a, to := range map[uint32]*uint32{abi.FunctionMaxThreads: &f.maxThreads, abi.FunctionSharedBytes: &f.staticShared} {
		v, err := df.Attribute(ctx, a)
		if err != nil {
			return err
		}
		*to = uint32(v)
	}
	if usualShared > f.staticShared {
		f.maxDynamic.Store(usualShared - f.staticShared)
	}
	return nil
}

// ModuleGetFunction is cuModuleGetFunction.
func (c *Call) ModuleGetFunction(out *Handle, h Handle, name *byte) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	s, ok := text(name)
	if !ok || out == nil {
		return ErrorInvalidValue
	}
	if m.x.pending() {
		return c.recorded(m.x, func(t *task) error {
			f, err := t.recordFunction(m, s)
			if err == nil {
				put(out, f.handle)
			}
			return err
		}, func() Result { return c.ModuleGetFunction(out, h, name) })
	}
	f, r := m.function(s)
	if r == Success {
		put(out, f.handle)
	}
	return r
}

// function returns a function by its handle.
func (c *Call) function(h Handle) (*function, Result) {
	if f := get[function](&c.d.objects, h); f != nil {
		if r := Result(f.m.x.sticky.Load()); r != Success {
			return f, r
		}
		return f, f.failed
	}
	return c.kernelFunction(h)
}

// FuncGetAttribute is cuFuncGetAttribute.
func (c *Call) FuncGetAttribute(out *int32, attribute uint32, h Handle) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if out == nil || attribute >= FuncAttributeMax {
		return ErrorInvalidValue
	}
	v, r := f.attribute(attribute)
	if r == Success {
		put(out, v)
	}
	return r
}

// attribute returns an attribute of a function.
func (f *function) attribute(attribute uint32) (int32, Result) {
	switch attribute {
	case FuncAttributeMaxThreadsPerBlock:
		return int32(f.maxThreads), Success
	case FuncAttributeSharedSizeBytes:
		return int32(f.staticShared), Success
	case FuncAttributeMaxDynamicSharedSizeBytes:
		return int32(f.maxDynamic.Load()), Success
	}
	if attribute > FuncAttributeCacheModeCa {
		return f.attributes[attribute].Load(), Success
	}
	v, err := f.f.Attribute(context.Background(), attribute)
	if err != nil {
		return 0, f.m.x.fail(err)
	}
	return int32(v), Success
}

// FuncSetAttribute is cuFuncSetAttribute. The host raises a kernel's shared memory by itself, so
// that attribute only bounds launches.
func (c *Call) FuncSetAttribute(h Handle, attribute uint32, v int32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	return f.set(attribute, v)
}

func (f *function) set(attribute uint32, v int32) Result {
	switch {
	case attribute == FuncAttributeMaxDynamicSharedSizeBytes:
		most, r := f.m.x.d.attribute(DeviceAttributeMaxSharedMemoryPerBlockOptin)
		if r != Success {
			return r
		}
		if v < 0 || int64(v)+int64(f.staticShared) > int64(most) {
			return ErrorInvalidValue
		}
		f.maxDynamic.Store(uint32(v))
		return Success
	case attribute == FuncAttributePreferredSharedMemoryCarveout:
		if v < -1 || v > 100 {
			return ErrorInvalidValue
		}
	case attribute <= FuncAttributeCacheModeCa || attribute >= FuncAttributeMax:
		return ErrorInvalidValue
	case v != 0:
		return ErrorNotSupported // of clusters
	}
	f.attributes[attribute].Store(v)
	return Success
}

// FuncGetName is cuFuncGetName.
func (c *Call) FuncGetName(out *Pointer, h Handle) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, c.d.names.of(f.name))
	return Success
}

// FuncGetModule is cuFuncGetModule.
func (c *Call) FuncGetModule(out *Handle, h Handle) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, f.m.handle)
	return Success
}

// FuncGetParamCount is cuFuncGetParamCount.
func (c *Call) FuncGetParamCount(h Handle, count *uint64) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if count == nil {
		return ErrorInvalidValue
	}
	put(count, uint64(len(f.params)))
	return Success
}

// FuncGetParamInfo is cuFuncGetParamInfo.
func (c *Call) FuncGetParamInfo(h Handle, i uint64, at, size *uint64) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if at == nil || i >= uint64(len(f.params)) {
		return ErrorInvalidValue
	}
	put(at, uint64(f.params[i].Offset))
	if size != nil {
		put(size, uint64(f.params[i].Size))
	}
	return Success
}

// FuncIsLoaded is cuFuncIsLoaded: a function that a program has is loaded.
func (c *Call) FuncIsLoaded(state *uint32, h Handle) Result {
	if _, r := c.function(h); r != Success {
		return r
	}
	if state == nil {
		return ErrorInvalidValue
	}
	put(state, 1) // CU_FUNCTION_LOADING_STATE_LOADED
	return Success
}

// FuncLoad is cuFuncLoad.
func (c *Call) FuncLoad(h Handle) Result {
	_, r := c.function(h)
	return r
}

// FuncSetCacheConfig is cuFuncSetCacheConfig, a hint.
func (c *Call) FuncSetCacheConfig(h Handle, config uint32) Result {
	if _, r := c.function(h); r != Success {
		return r
	}
	if config > 3 {
		return ErrorInvalidValue
	}
	return Success
}

// FuncSetSharedMemConfig is cuFuncSetSharedMemConfig, which has no effect since compute capability 5.
func (c *Call) FuncSetSharedMemConfig(h Handle, config uint32) Result {
	if _, r := c.function(h); r != Success {
		return r
	}
	if config > 2 {
		return ErrorInvalidValue
	}
	return Success
}

// ModuleGetFunctionCount is cuModuleGetFunctionCount.
func (c *Call) ModuleGetFunctionCount(count *uint32, h Handle) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	if count == nil {
		return ErrorInvalidValue
	}
	if m.names == nil {
		return ErrorNotSupported
	}
	put(count, uint32(len(m.names())))
	return Success
}

// ModuleEnumerateFunctions is cuModuleEnumerateFunctions.
func (c *Call) ModuleEnumerateFunctions(out *Handle, n uint32, h Handle) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	if m.names == nil {
		return ErrorNotSupported
	}
	names := m.names()
	to := array(out, uint64(n))
	for i, name := range names[:min(len(names), int(n))] {
		f, r := m.function(name)
		if r != Success {
			return r
		}
		to[i] = f.handle
	}
	return Success
}

// takesCode reports whether a device with these features takes machine code.
func takesCode(f abi.Features) bool { return f&abi.FeatureCubin != 0 }
