package cuda

import (
	"context"

	"vgpud/guestagent/tasks"
	"vgpud/mediator/vgpu/abi"
)

// CtxCreateParams is CUctxCreateParams.
type CtxCreateParams struct {
	Affinity      Pointer
	AffinityCount int32
	CIG           Pointer
}

// CtxCreateV3 is cuCtxCreate_v3. A part of the SMs can't be asked for.
func (c *Call) CtxCreateV3(out *Handle, _ Pointer, affinities int32, flags uint32, dev int32) Result {
	if affinities != 0 {
		return ErrorUnsupportedExecAffinity
	}
	return c.CtxCreateV2(out, flags, dev)
}

// CtxCreateV4 is cuCtxCreate_v4.
func (c *Call) CtxCreateV4(out *Handle, params *CtxCreateParams, flags uint32, dev int32) Result {
	if params != nil {
		if params.AffinityCount != 0 {
			return ErrorUnsupportedExecAffinity
		}
		if params.CIG != nil {
			return ErrorNotSupported
		}
	}
	return c.CtxCreateV2(out, flags, dev)
}

// CtxAttach is cuCtxAttach.
func (c *Call) CtxAttach(out *Handle, flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || flags != 0 {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	x.refs++
	x.mu.Unlock()
	put(out, x.handle)
	return Success
}

// CtxDetach is cuCtxDetach: the last one destroys the context.
func (c *Call) CtxDetach(h Handle) Result {
	x := get[Context](&c.d.objects, h)
	if x == nil || h != c.t.current() {
		return ErrorInvalidContext
	}
	x.mu.Lock()
	x.refs--
	last := x.refs == 0
	x.mu.Unlock()
	if last {
		return c.CtxDestroyV2(h)
	}
	return Success
}

// CtxGetDeviceV2 is cuCtxGetDevice_v2.
func (c *Call) CtxGetDeviceV2(out *int32, h Handle) Result {
	if h == 0 {
		return c.CtxGetDevice(out)
	}
	if _, r := c.contextOf(h); r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, 0)
	return Success
}

// CtxSynchronizeV2 is cuCtxSynchronize_v2.
func (c *Call) CtxSynchronizeV2(h Handle) Result {
	x, r := c.contextOf(h)
	if r != Success {
		return r
	}
	return c.synchronize(x)
}

// CtxGetFlags is cuCtxGetFlags.
func (c *Call) CtxGetFlags(flags *uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if flags == nil {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(flags, x.flags)
	return Success
}

// CtxSetFlags is cuCtxSetFlags.
func (c *Call) CtxSetFlags(flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if !validContextFlags(flags) {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flags = flags
	return Success
}

// CtxGetId is cuCtxGetId.
func (c *Call) CtxGetId(h Handle, id *uint64) Result { //nolint:revive // CUDA's name
	x, r := c.contextOf(h)
	if r != Success {
		return r
	}
	if id == nil {
		return ErrorInvalidValue
	}
	put(id, x.id)
	return Success
}

// apiVersion is what cuCtxGetApiVersion answers since CUDA 4.
const apiVersion = 3020

// CtxGetApiVersion is cuCtxGetApiVersion.
func (c *Call) CtxGetApiVersion(h Handle, version *uint32) Result { //nolint:revive // CUDA's name
	if _, r := c.contextOf(h); r != Success {
		return r
	}
	if version == nil {
		return ErrorInvalidValue
	}
	put(version, apiVersion)
	return Success
}

// CtxGetStreamPriorityRange is cuCtxGetStreamPriorityRange.
func (c *Call) CtxGetStreamPriorityRange(least, greatest *int32) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if least != nil {
		put(least, leastPriority)
	}
	if greatest != nil {
		put(greatest, greatestPriority)
	}
	return Success
}

// CtxGetCacheConfig is cuCtxGetCacheConfig.
func (c *Call) CtxGetCacheConfig(config *uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if config == nil {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(config, x.cache)
	return Success
}

// CtxSetCacheConfig is cuCtxSetCacheConfig, a hint that the hosts' GPUs need not heed.
func (c *Call) CtxSetCacheConfig(config uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if config > 3 {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cache = config
	return Success
}

// CtxGetSharedMemConfig is cuCtxGetSharedMemConfig.
func (c *Call) CtxGetSharedMemConfig(config *uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if config == nil {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(config, x.banks)
	return Success
}

// CtxSetSharedMemConfig is cuCtxSetSharedMemConfig, which has no effect since compute capability 5.
func (c *Call) CtxSetSharedMemConfig(config uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if config > 2 {
		return ErrorInvalidValue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.banks = config
	return Success
}

// CtxResetPersistingL2Cache is cuCtxResetPersistingL2Cache: no line is kept.
func (c *Call) CtxResetPersistingL2Cache() Result {
	_, r := c.context()
	return r
}

// usualLimits are the limits of a context on a host that has none.
var usualLimits = map[uint32]uint64{
	abi.LimitStackBytes: 1 << 10, abi.LimitPrintfBytes: 1 << 20, abi.LimitHeapBytes: 8 << 20, abi.LimitL2FetchBytes: 64,
}

// CtxGetLimit is cuCtxGetLimit.
func (c *Call) CtxGetLimit(out *uint64, limit uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || limit >= LimitMax {
		return ErrorInvalidValue
	}
	if c.d.gpu.Info().Features&abi.FeatureLimits == 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		v, ok := x.limits[limit]
		if !ok {
			if v, ok = usualLimits[limit]; !ok {
				return ErrorUnsupportedLimit
			}
		}
		put(out, v)
		return Success
	}
	v, err := x.gpu.Limit(context.Background(), limit)
	if err != nil {
		return unsupportedLimit(x.fail(err))
	}
	put(out, v)
	return Success
}

// unsupportedLimit returns the result that CUDA has for limits that a device does not support.
func unsupportedLimit(r Result) Result {
	if r == ErrorNotSupported {
		return ErrorUnsupportedLimit
	}
	return r
}

// CtxSetLimit is cuCtxSetLimit. A host that has no such command has limits of its own; the value is
// only remembered.
func (c *Call) CtxSetLimit(limit uint32, v uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if limit >= LimitMax {
		return ErrorInvalidValue
	}
	if c.d.gpu.Info().Features&abi.FeatureLimits == 0 {
		if _, ok := usualLimits[limit]; !ok {
			return ErrorUnsupportedLimit
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.limits[limit] = v
		return Success
	}
	if x.pending() {
		return c.recorded(x, func(t *task) error {
			if !t.mayLimit(limit, v) {
				return tasks.ErrBegin
			}
			t.limits[limit] = v
			return nil
		}, func() Result { return c.CtxSetLimit(limit, v) })
	}
	if err := x.gpu.SetLimit(context.Background(), limit, v); err != nil {
		return unsupportedLimit(x.fail(err))
	}
	return Success
}

// CtxEnablePeerAccess is cuCtxEnablePeerAccess: contexts of one device are of separate processes.
func (c *Call) CtxEnablePeerAccess(peer Handle, flags uint32) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if flags != 0 {
		return ErrorInvalidValue
	}
	if x := get[Context](&c.d.objects, peer); x == nil || peer == c.t.current() {
		return ErrorInvalidContext
	}
	return ErrorPeerAccessUnsupported
}

// CtxDisablePeerAccess is cuCtxDisablePeerAccess.
func (c *Call) CtxDisablePeerAccess(peer Handle) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if get[Context](&c.d.objects, peer) == nil {
		return ErrorInvalidContext
	}
	return ErrorPeerAccessNotEnabled
}
