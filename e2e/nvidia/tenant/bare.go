package tenant

import (
	"context"
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// bare is a context on the GPU itself, through the package that executors use.
type bare struct {
	device  gpu.Device
	context gpu.Context
	channel gpu.Channel
	fences  []gpu.Fence
}

// Open opens the GPU itself.
type Open func(ctx context.Context, g ipc.GPU) (gpu.Device, error)

func openBare(ctx context.Context, s *Setup, open Open) (_ *bare, err error) {
	b := &bare{}
	if b.device, err = open(ctx, s.GPU); err != nil {
		return nil, err
	}
	if err = b.renew(ctx); err != nil {
		return nil, errors.Join(err, b.device.Close())
	}
	return b, nil
}

// renew creates the context and its channel.
func (b *bare) renew(ctx context.Context) (err error) {
	if b.context, err = b.device.NewContext(ctx, gpu.ContextOptions{}); err == nil {
		b.channel, err = b.context.NewChannel()
	}
	return err
}

func (b *bare) load(_ context.Context, ptx string) (module, error) {
	m, err := b.context.LoadModule([]byte(ptx))
	if err != nil {
		return nil, err
	}
	return bareModule{m}, nil
}

func (b *bare) alloc(_ context.Context, bytes uint64) (uint64, error) {
	p, err := b.context.Alloc(bytes)
	return uint64(p), err
}

func (b *bare) copyIn(ctx context.Context, dst uint64, src []byte) error {
	f, err := b.channel.CopyIn(gpu.Ptr(dst), src)
	return b.end(ctx, f, err)
}

func (b *bare) copyOut(ctx context.Context, dst []byte, src uint64) error {
	f, err := b.channel.CopyOut(dst, gpu.Ptr(src))
	return b.end(ctx, f, err)
}

// end waits for a command. A non-nil err means that the command was not queued; end returns it.
func (b *bare) end(ctx context.Context, f gpu.Fence, err error) error {
	if err != nil {
		return err
	}
	if err := b.channel.Wait(ctx, f); err != nil {
		return err
	}
	return b.channel.Outcome(f).Err
}

func (b *bare) lines(n int, _ bool) {
	if n > len(b.fences) {
		b.fences = make([]gpu.Fence, n)
	}
}

func (b *bare) launch(_ context.Context, line int, c *command) (err error) {
	if c.as != nil && c.as.Form != 0 {
		return fmt.Errorf("only guests have forms of kernels")
	}
	b.fences[line], err = b.channel.Launch(&gpu.Launch{
		Function: c.function.(bareFunction).Function, Grid: dim3(c.grid), Block: dim3(c.block),
		SharedBytes: uint64(c.shared), Params: c.params,
	})
	return err
}

func (b *bare) wait(ctx context.Context, line int) (d done, err error) {
	f := b.fences[line]
	if err = b.channel.Wait(ctx, f); err != nil {
		return d, err
	}
	o := b.channel.Outcome(f)
	d.start, d.end = o.Start, o.End
	return d, o.Err
}

func (b *bare) reset(ctx context.Context) error {
	if err := b.context.Close(); err != nil {
		return err
	}
	b.fences = nil
	return b.renew(ctx)
}

func (b *bare) close() error { return b.device.Close() }

func (b *bare) free() (bytes uint64, err error) {
	bytes, _, err = b.context.Memory()
	return bytes, err
}

func (b *bare) pin(mem []byte) (release func() error, err error) {
	r, ok := b.context.(gpu.HostRegistrar)
	if !ok {
		return nil, errors.New("the GPU's driver registers no memory")
	}
	return r.RegisterHost(mem)
}

func dim3(d [3]uint32) gpu.Dim3 { return gpu.Dim3{X: d[0], Y: d[1], Z: d[2]} }

type bareModule struct{ gpu.Module }

func (m bareModule) function(_ context.Context, name string) (function, error) {
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	return bareFunction{f}, nil
}

func (m bareModule) global(_ context.Context, name string) (uint64, error) {
	p, _, err := m.Global(name)
	return uint64(p), err
}

type bareFunction struct{ gpu.Function }

func (f bareFunction) params(args ...[]byte) ([]byte, error) {
	a := f.Attributes()
	var offsets, sizes []int
	for _, p := range a.Params {
		offsets, sizes = append(offsets, int(p.Offset)), append(sizes, int(p.Size))
	}
	return place(a.Name, offsets, sizes, args)
}

func (bareFunction) form() *Form { return nil }
