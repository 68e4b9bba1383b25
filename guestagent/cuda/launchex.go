package cuda

import (
	"encoding/binary"
	"math"
)

// LaunchConfig is CUlaunchConfig.
type LaunchConfig struct {
	Grid, Block [3]uint32
	SharedBytes uint32
	Stream      Handle
	Attributes  *LaunchAttribute
	Count       uint32
}

// LaunchAttribute is CUlaunchAttribute.
type LaunchAttribute struct {
	ID    uint32
	_     uint32
	Value LaunchAttributeValue
}

// LaunchAttributeValue is CUlaunchAttributeValue.
type LaunchAttributeValue [64]byte

func (v *LaunchAttributeValue) uint32(i int) uint32 { return binary.LittleEndian.Uint32(v[4*i:]) }

// apply has a launch heed an attribute. Those that change no result are ignored.
func (l *configuration) apply(a *LaunchAttribute) Result {
	switch a.ID {
	case LaunchAttributeIgnore, LaunchAttributeAccessPolicyWindow, LaunchAttributeSynchronizationPolicy,
		LaunchAttributeClusterSchedulingPolicyPreference, LaunchAttributeProgrammaticStreamSerialization,
		LaunchAttributeMemSyncDomainMap, LaunchAttributeMemSyncDomain, LaunchAttributePreferredClusterDimension,
		LaunchAttributePreferredSharedMemoryCarveout:
	case LaunchAttributeCooperative:
		l.cooperative = a.Value.uint32(0) != 0
	case LaunchAttributePriority:
		l.priority = int32(a.Value.uint32(0))
	case LaunchAttributeClusterDimension:
		for i := range 3 {
			if a.Value.uint32(i) > 1 {
				return ErrorInvalidClusterSize
			}
		}
	case LaunchAttributeProgrammaticEvent, LaunchAttributeLaunchCompletionEvent, LaunchAttributeDeviceUpdatableKernelNode:
		return ErrorNotSupported
	default:
		return ErrorInvalidValue
	}
	return Success
}

// LaunchKernelEx is cuLaunchKernelEx.
func (c *Call) LaunchKernelEx(config *LaunchConfig, h Handle, params, extra *Pointer) Result {
	if config == nil || config.Count > 0 && config.Attributes == nil || config.Count > math.MaxUint16 {
		return ErrorInvalidValue
	}
	l := configuration{grid: config.Grid, block: config.Block, shared: config.SharedBytes}
	if config.Count > 0 {
		all := array(config.Attributes, uint64(config.Count))
		for i := range all {
			if r := l.apply(&all[i]); r != Success {
				return r
			}
		}
	}
	return c.launchAs(h, l, config.Stream, params, extra)
}

// FuncSetBlockShape is cuFuncSetBlockShape, of CUDA 3.
func (c *Call) FuncSetBlockShape(h Handle, x, y, z int32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if x <= 0 || y <= 0 || z <= 0 {
		return ErrorInvalidValue
	}
	return f.legacySet(func(l *legacyLaunch) { l.block = [3]uint32{uint32(x), uint32(y), uint32(z)} })
}

func (f *function) legacySet(set func(*legacyLaunch)) Result {
	f.m.x.mu.Lock()
	defer f.m.x.mu.Unlock()
	set(&f.legacy)
	return Success
}

// FuncSetSharedSize is cuFuncSetSharedSize.
func (c *Call) FuncSetSharedSize(h Handle, n uint32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	return f.legacySet(func(l *legacyLaunch) { l.shared = n })
}

// ParamSetSize is cuParamSetSize.
func (c *Call) ParamSetSize(h Handle, n uint32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if n > uint32(f.bytes) {
		return ErrorInvalidValue
	}
	return f.legacySet(func(l *legacyLaunch) {
		p := make([]byte, f.bytes)
		copy(p, l.params)
		l.params = p
	})
}

// setParam stores bytes of a parameter for cuLaunch.
func (c *Call) setParam(h Handle, at int32, b []byte) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if at < 0 || int(at)+len(b) > f.bytes {
		return ErrorInvalidValue
	}
	return f.legacySet(func(l *legacyLaunch) {
		if l.params == nil {
			l.params = make([]byte, f.bytes)
		}
		copy(l.params[at:], b)
	})
}

// ParamSeti is cuParamSeti.
func (c *Call) ParamSeti(h Handle, at int32, v uint32) Result {
	return c.setParam(h, at, binary.LittleEndian.AppendUint32(nil, v))
}

// ParamSetf is cuParamSetf.
func (c *Call) ParamSetf(h Handle, at int32, v float32) Result {
	return c.setParam(h, at, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}

// ParamSetv is cuParamSetv.
func (c *Call) ParamSetv(h Handle, at int32, p Pointer, n uint32) Result {
	if p == nil || access(p, uint64(n)) != nil {
		return ErrorInvalidValue
	}
	return c.setParam(h, at, hostBytes(p, uint64(n)))
}

// Launch is cuLaunch: one block.
func (c *Call) Launch(h Handle) Result { return c.LaunchGrid(h, 1, 1) }

// LaunchGrid is cuLaunchGrid.
func (c *Call) LaunchGrid(h Handle, width, height int32) Result {
	return c.LaunchGridAsync(h, width, height, 0)
}

// LaunchGridAsync is cuLaunchGridAsync.
func (c *Call) LaunchGridAsync(h Handle, width, height int32, sh Handle) Result {
	s, r := c.stream(sh)
	if r != Success {
		return r
	}
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if width <= 0 || height <= 0 {
		return ErrorInvalidValue
	}
	f.m.x.mu.Lock()
	l := configuration{grid: [3]uint32{uint32(width), uint32(height), 1}, block: f.legacy.block, shared: f.legacy.shared}
	c.launch.params = append(c.launch.params[:0], f.legacy.params...)
	f.m.x.mu.Unlock()
	for len(c.launch.params) < f.bytes {
		c.launch.params = append(c.launch.params, 0)
	}
	return c.start(s, f, &l)
}
