package demo

import (
	"context"
	"fmt"

	"vgpud/e2e/kernels"
	"vgpud/guestagent/driver"
)

// Work is one case of the corpus that a guest works at.
type Work struct {
	Kernel string `json:"kernel"`
	Size   string `json:"size"`
	// Repeat is how many times its launches go to the GPU between two checks of
	// their results, where they may be repeated.
	Repeat int `json:"repeat"`
}

// load is a case in a guest's GPU memory.
type load struct {
	c       *kernels.Case
	repeat  int
	buffers map[string]driver.Ptr
	steps   []driver.Launch
	scratch []byte // for results
}

// newLoad makes a case and puts it into GPU memory.
func newLoad(ctx context.Context, gpu *driver.Context, w Work, seed uint64) (*load, error) {
	k, ok := kernels.ByName(w.Kernel)
	if !ok {
		return nil, fmt.Errorf("the corpus has no kernel %q", w.Kernel)
	}
	size, err := kernels.ParseSize(w.Size)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", w.Kernel, err)
	}
	l := &load{c: k.Case(size, seed), repeat: max(w.Repeat, 1), buffers: make(map[string]driver.Ptr)}
	if len(l.c.Restore()) > 0 {
		l.repeat = 1 // its results depend on how often it ran
	}
	m, err := gpu.LoadModule(ctx, []byte(k.PTX(kernels.SM80)))
	if err != nil {
		return nil, fmt.Errorf("load %v: %w", l.c, err)
	}
	if err := l.place(ctx, gpu, m); err != nil {
		return nil, fmt.Errorf("prepare %v: %w", l.c, err)
	}
	return l, nil
}

// place allocates and fills the case's buffers and encodes its launches.
func (l *load) place(ctx context.Context, gpu *driver.Context, m *driver.Module) (err error) {
	for i := range l.c.Buffers {
		b := &l.c.Buffers[i]
		var p driver.Ptr
		if b.Global != "" {
			p, _, err = m.Global(ctx, b.Global)
		} else {
			p, err = gpu.Alloc(ctx, uint64(b.Size))
		}
		if err != nil {
			return err
		}
		l.buffers[b.Name] = p
		if b.Init != nil {
			if err := gpu.CopyIn(ctx, p, b.Init); err != nil {
				return err
			}
		}
		l.scratch = append(l.scratch, make([]byte, max(b.Size-len(l.scratch), 0))...)
	}
	for i := range l.c.Steps {
		s := &l.c.Steps[i]
		f, err := m.Function(ctx, s.Entry)
		if err != nil {
			return err
		}
		args := make([]any, len(s.Args))
		for j, a := range s.Args {
			args[j] = a.Bytes
			if a.Buffer != "" {
				args[j] = l.buffers[a.Buffer] + driver.Ptr(a.Offset)
			}
		}
		params, err := f.AppendParams(nil, args...)
		if err != nil {
			return err
		}
		l.steps = append(l.steps, driver.Launch{
			Function: f, Grid: dim(s.Grid), Block: dim(s.Block), SharedBytes: s.SharedBytes, Params: params,
		})
	}
	return nil
}

func dim(d [3]uint32) driver.Dim { return driver.Dim{X: d[0], Y: d[1], Z: d[2]} }

// run launches the case on ch, waits for it and checks what came of it. done is
// called for each launch that has ended.
func (l *load) run(ctx context.Context, ch *driver.Channel, done func()) error {
	for _, b := range l.c.Restore() {
		if _, err := ch.CopyIn(ctx, l.buffers[b.Name], b.Init); err != nil {
			return fmt.Errorf("%v: restore %s: %w", l.c, b.Name, err)
		}
	}
	pending := make([]driver.Pending, l.repeat*len(l.steps))
	for i := range pending {
		if err := ch.Enqueue(ctx, &pending[i], &l.steps[i%len(l.steps)]); err != nil {
			return fmt.Errorf("%v: %w", l.c, err)
		}
	}
	for i := range pending {
		if err := pending[i].Wait(ctx); err != nil {
			return fmt.Errorf("%v: %w", l.c, err)
		}
		done()
	}
	for i := range l.c.Buffers {
		b := &l.c.Buffers[i]
		if b.Want == nil {
			continue
		}
		got := l.scratch[:b.Size]
		if err := ch.CopyOut(ctx, got, l.buffers[b.Name]); err != nil {
			return fmt.Errorf("%v: read %s: %w", l.c, b.Name, err)
		}
		if err := l.c.Check(b.Name, got); err != nil {
			return err
		}
	}
	return nil
}
