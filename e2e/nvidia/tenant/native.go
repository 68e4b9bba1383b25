package tenant

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"vgpud/gpu/nvidia"
	"vgpud/gpu/nvidia/cuda"
)

// native is a context through CUDA's driver interface alone, as CUDA programs have it. It is the
// baseline of the product.
type native struct {
	cuda   *cuda.Library
	ctx    cuda.Context
	device cuda.Device
	stream cuda.Stream
	args   *cuda.Args
	events []cuda.Event
	apart  bool // each launch has an event to be waited for
	waited bool // all launches have been waited for
}

// eventDisableTiming is CUDA's flag for an event without a time.
const eventDisableTiming = 2

// openNative creates a context on the GPU with the given name, spelled as in the daemon's
// configuration, or on the first GPU if the name is empty. The context belongs to the thread, so
// the goroutine is locked to its thread.
func openNative(gpu string) (_ *native, err error) {
	runtime.LockOSThread()
	n := &native{args: cuda.NewArgs()}
	if n.cuda, err = cuda.Open(); err != nil {
		return nil, err
	}
	if err = n.cuda.Init(); err != nil {
		return nil, fmt.Errorf("start CUDA: %w", err)
	}
	index, err := indexOf(n.cuda, gpu)
	if err != nil {
		return nil, fmt.Errorf("find the GPU: %w", err)
	}
	if n.device, err = n.cuda.DeviceGet(index); err != nil {
		return nil, fmt.Errorf("find the GPU: %w", err)
	}
	return n, n.renew()
}

// indexOf returns the index of the named GPU among those that this process sees.
func indexOf(d nvidia.Driver, gpu string) (int, error) {
	if gpu == "" {
		return 0, nil
	}
	all, err := nvidia.List(d)
	if err != nil {
		return 0, err
	}
	found, err := nvidia.Find(all, gpu)
	return found.Index, err
}

func (n *native) renew() (err error) {
	if n.ctx, err = n.cuda.CtxCreate(0, n.device); err != nil {
		return fmt.Errorf("make a context: %w", err)
	}
	if n.stream, err = n.cuda.StreamCreate(cuda.StreamNonBlocking, 0); err != nil {
		return fmt.Errorf("make a stream: %w", err)
	}
	return nil
}

func (n *native) load(_ context.Context, ptx string) (module, error) {
	m, log, err := n.cuda.ModuleLoadData(append([]byte(ptx), 0))
	if err != nil {
		return nil, fmt.Errorf("load a module: %w: %s", err, log)
	}
	return nativeModule{n, m}, nil
}

func (n *native) alloc(_ context.Context, bytes uint64) (uint64, error) {
	p, err := n.cuda.MemAllocAsync(bytes, n.stream)
	if err == nil {
		err = n.cuda.MemsetAsync(p, 0, 1, bytes, n.stream)
	}
	return uint64(p), errors.Join(err, n.cuda.StreamSynchronize(n.stream))
}

func (n *native) copyIn(_ context.Context, dst uint64, src []byte) error {
	return errors.Join(n.cuda.MemcpyHtoDAsync(cuda.DevicePtr(dst), src, n.stream), n.cuda.StreamSynchronize(n.stream))
}

func (n *native) copyOut(_ context.Context, dst []byte, src uint64) error {
	return errors.Join(n.cuda.MemcpyDtoHAsync(dst, cuda.DevicePtr(src), n.stream), n.cuda.StreamSynchronize(n.stream))
}

// lines creates events if single launches have to be waited for while others are under way.
// Otherwise wait synchronizes the stream, which is fastest.
func (n *native) lines(count int, again bool) {
	n.apart = again && count > 1
	for n.apart && len(n.events) < count {
		e, err := n.cuda.EventCreate(eventDisableTiming)
		if err != nil {
			n.apart = false
			return
		}
		n.events = append(n.events, e)
	}
}

func (n *native) launch(_ context.Context, line int, c *command) error {
	copy(n.args.Params[:], c.params)
	if err := n.cuda.LaunchKernel(c.function.(nativeFunction).f, c.grid, c.block, c.shared, n.stream, n.args, len(c.params)); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	n.waited = false
	if !n.apart {
		return nil
	}
	return n.cuda.EventRecord(n.events[line], n.stream)
}

// wait returns no times: the CUDA events for them would disturb the measurement.
func (n *native) wait(_ context.Context, line int) (d done, err error) {
	if n.apart {
		return d, n.cuda.EventSynchronize(n.events[line])
	}
	if n.waited {
		return d, nil
	}
	n.waited = true
	return d, n.cuda.StreamSynchronize(n.stream)
}

func (n *native) reset(context.Context) error {
	n.events, n.apart = nil, false
	return errors.Join(n.cuda.CtxDestroy(n.ctx), n.renew())
}

func (n *native) close() error { return n.cuda.CtxDestroy(n.ctx) }

func (n *native) free() (bytes uint64, err error) {
	bytes, _, err = n.cuda.MemGetInfo()
	return bytes, err
}

func (n *native) pin(mem []byte) (release func() error, err error) {
	if err := n.cuda.MemHostRegister(mem, cuda.HostPortable); err != nil {
		return nil, err
	}
	return func() error { return n.cuda.MemHostUnregister(mem) }, nil
}

type nativeModule struct {
	n *native
	m cuda.Module
}

func (m nativeModule) function(_ context.Context, name string) (function, error) {
	f, err := m.n.cuda.ModuleGetFunction(m.m, name)
	if err != nil {
		return nil, fmt.Errorf("find kernel %s: %w", name, err)
	}
	return nativeFunction{m.n, f, name}, nil
}

func (m nativeModule) global(_ context.Context, name string) (uint64, error) {
	p, _, err := m.n.cuda.ModuleGetGlobal(m.m, name)
	return uint64(p), err
}

type nativeFunction struct {
	n    *native
	f    cuda.Function
	name string
}

func (f nativeFunction) params(args ...[]byte) ([]byte, error) {
	var offsets, sizes []int
	for i := range args {
		offset, size, err := f.n.cuda.FuncGetParamInfo(f.f, i)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: parameter %d: %w", f.name, i, err)
		}
		offsets, sizes = append(offsets, int(offset)), append(sizes, int(size))
	}
	return place(f.name, offsets, sizes, args)
}

func (nativeFunction) form() *Form { return nil }
