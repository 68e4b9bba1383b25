package host

import (
	"context"
	"fmt"

	"vgpud/e2e/kernels"
	"vgpud/guestagent/driver"
)

// Load is a case of the corpus in a guest's GPU memory.
type Load struct {
	Case  *kernels.Case
	Steps []driver.Launch

	gpu     *driver.Context
	module  *driver.Module
	buffers map[string]driver.Ptr
}

// NewLoad loads a case's module into a context, and allocates and fills its
// buffers. Close frees them.
func NewLoad(ctx context.Context, gpu *driver.Context, ptx string, c *kernels.Case) (_ *Load, err error) {
	l := &Load{Case: c, gpu: gpu, buffers: make(map[string]driver.Ptr)}
	if l.module, err = gpu.LoadModule(ctx, []byte(ptx)); err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	for i := range c.Buffers {
		if err := l.place(ctx, &c.Buffers[i]); err != nil {
			return nil, fmt.Errorf("%v: buffer %s: %w", c, c.Buffers[i].Name, err)
		}
	}
	for i := range c.Steps {
		if err := l.prepare(ctx, &c.Steps[i]); err != nil {
			return nil, fmt.Errorf("%v: step %d: %w", c, i, err)
		}
	}
	return l, nil
}

// place allocates and fills a buffer.
func (l *Load) place(ctx context.Context, b *kernels.Buffer) (err error) {
	var p driver.Ptr
	if b.Global != "" {
		p, _, err = l.module.Global(ctx, b.Global)
	} else {
		p, err = l.gpu.Alloc(ctx, uint64(b.Size))
	}
	if err != nil {
		return err
	}
	l.buffers[b.Name] = p
	if b.Init == nil {
		return nil
	}
	return l.gpu.CopyIn(ctx, p, b.Init)
}

// prepare encodes a launch.
func (l *Load) prepare(ctx context.Context, s *kernels.Launch) error {
	f, err := l.module.Function(ctx, s.Entry)
	if err != nil {
		return err
	}
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		args[i] = a.Bytes
		if a.Buffer != "" {
			args[i] = l.buffers[a.Buffer] + driver.Ptr(a.Offset)
		}
	}
	params, err := f.AppendParams(nil, args...)
	if err != nil {
		return err
	}
	dim := func(d [3]uint32) driver.Dim { return driver.Dim{X: d[0], Y: d[1], Z: d[2]} }
	l.Steps = append(l.Steps, driver.Launch{
		Function: f, Grid: dim(s.Grid), Block: dim(s.Block), SharedBytes: s.SharedBytes, Params: params,
	})
	return nil
}

// Run launches the case's steps on ch, waits, and checks what came of them. It
// may be called again.
func (l *Load) Run(ctx context.Context, ch *driver.Channel) error {
	for _, b := range l.Case.Restore() {
		if _, err := ch.CopyIn(ctx, l.buffers[b.Name], b.Init); err != nil {
			return fmt.Errorf("%v: restore %s: %w", l.Case, b.Name, err)
		}
	}
	pending := make([]driver.Pending, len(l.Steps))
	for i := range l.Steps {
		if err := ch.Enqueue(ctx, &pending[i], &l.Steps[i]); err != nil {
			return fmt.Errorf("%v: step %d: %w", l.Case, i, err)
		}
	}
	for i := range pending {
		if err := pending[i].Wait(ctx); err != nil {
			return fmt.Errorf("%v: step %d: %w", l.Case, i, err)
		}
	}
	return l.Case.CheckAll(func(b *kernels.Buffer) ([]byte, error) {
		got := make([]byte, b.Size)
		return got, ch.CopyOut(ctx, got, l.buffers[b.Name])
	})
}

// Close frees the case's memory and module.
func (l *Load) Close(ctx context.Context) error {
	for _, b := range l.Case.Buffers {
		if b.Global != "" {
			continue
		}
		if err := l.gpu.Free(ctx, l.buffers[b.Name]); err != nil {
			return fmt.Errorf("%v: free %s: %w", l.Case, b.Name, err)
		}
	}
	return l.module.Unload(ctx)
}
