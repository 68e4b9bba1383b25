package tenant

import (
	"context"
	"errors"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// guest is a context on a virtual GPU, over vfio-user.
type guest struct {
	device  *driver.Device
	gpu     *driver.Context
	channel *driver.Channel
	pending []driver.Pending
	events  []*driver.EventKernel
	// eventsOf is the job of the only event kernel, or nil.
	eventsOf *job
}

func openGuest(ctx context.Context, s *Setup) (_ *guest, err error) {
	bus, err := driver.DialVFIOUser(ctx, s.Socket)
	if err != nil {
		return nil, err
	}
	g := &guest{}
	if g.device, err = driver.Open(ctx, bus); err != nil {
		return nil, err
	}
	o := driver.ContextOptions{Priority: s.Priority, Preempt: &driver.PreemptOptions{
		Off: !s.Preempt, Forms: abi.PreemptForm(s.Forms),
	}}
	if g.gpu, err = g.device.NewContext(ctx, o); err == nil {
		g.channel, err = g.gpu.NewChannel(ctx, driver.ChannelOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, g.device.Close())
	}
	return g, nil
}

func (g *guest) load(ctx context.Context, ptx string) (module, error) {
	m, err := g.gpu.LoadModule(ctx, []byte(ptx))
	if err != nil {
		return nil, err
	}
	return guestModule{m}, nil
}

func (g *guest) alloc(ctx context.Context, bytes uint64) (uint64, error) {
	p, err := g.gpu.Alloc(ctx, bytes)
	return uint64(p), err
}

func (g *guest) copyIn(ctx context.Context, dst uint64, src []byte) error {
	return g.gpu.CopyIn(ctx, driver.Ptr(dst), src)
}

func (g *guest) copyOut(ctx context.Context, dst []byte, src uint64) error {
	return g.gpu.CopyOut(ctx, dst, driver.Ptr(src))
}

func (g *guest) lines(n int, _ bool) {
	if n > len(g.pending) {
		g.pending = make([]driver.Pending, n)
	}
}

func (g *guest) launch(ctx context.Context, line int, c *command) error {
	l := driver.Launch{
		Function: c.function.(guestFunction).Function, Grid: dim(c.grid), Block: dim(c.block), SharedBytes: c.shared, Params: c.params,
	}
	if c.as != nil {
		l.Preempt = &driver.Preempt{Form: abi.PreemptForm(c.as.Form), Group: c.as.Group, Every: c.as.Every}
	}
	return g.channel.Enqueue(ctx, &g.pending[line], &l)
}

func (g *guest) wait(ctx context.Context, line int) (d done, err error) {
	p := &g.pending[line]
	if err = p.Wait(ctx); err != nil {
		return d, err
	}
	d.start, d.end = p.Times()
	if p.Form() != 0 {
		d.evictions = p.Evictions()
	}
	return d, nil
}

// reset replaces the context by an empty one.
func (g *guest) reset(ctx context.Context) (err error) {
	if err = g.gpu.Reset(ctx); err == nil {
		g.pending, g.events, g.eventsOf = nil, nil, nil
		g.channel, err = g.gpu.NewChannel(ctx, driver.ChannelOptions{})
	}
	return err
}

func (g *guest) close() error { return g.device.Close() }

func dim(d [3]uint32) driver.Dim { return driver.Dim{X: d[0], Y: d[1], Z: d[2]} }

type guestModule struct{ *driver.Module }

func (m guestModule) function(ctx context.Context, name string) (function, error) {
	f, err := m.Function(ctx, name)
	if err != nil {
		return nil, err
	}
	return guestFunction{f}, nil
}

func (m guestModule) global(ctx context.Context, name string) (uint64, error) {
	p, _, err := m.Global(ctx, name)
	return uint64(p), err
}

type guestFunction struct{ *driver.Function }

func (f guestFunction) params(args ...[]byte) ([]byte, error) {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	return f.AppendParams(nil, all...)
}

func (f guestFunction) form() *Form {
	p := f.Preemption()
	form := Form{Why: p.Reason}
	if len(p.Classes) > 0 {
		c := p.Classes[0] // the class that was launched last
		form = Form{Form: uint8(c.Choice.Form), Group: c.Choice.Group, Every: c.Choice.Every, Why: c.Why.String(), Task: c.Task, Leaves: c.Leaves}
	}
	return &form
}
