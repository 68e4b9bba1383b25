package workload

import (
	"context"
	"fmt"
	"time"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// Load is a case of the corpus in a context's GPU memory. It runs on one channel at a time.
type Load struct {
	Case *corpus.Case
	// Steps are the case's launches, ready to be enqueued.
	Steps []driver.Launch

	gpu     *driver.Context
	module  *driver.Module
	buffers map[string]driver.Ptr
	scratch []byte // for results
	pending []driver.Pending
	began   []time.Time
}

// NewLoad loads a case's module into a context, and allocates and fills its buffers. Close frees
// them.
func NewLoad(ctx context.Context, gpu *driver.Context, ptx string, c *corpus.Case) (_ *Load, err error) {
	l := &Load{Case: c, gpu: gpu, buffers: make(map[string]driver.Ptr)}
	if l.module, err = gpu.LoadModule(ctx, []byte(ptx)); err != nil {
		return nil, fmt.Errorf("load %v: %w", c, err)
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
func (l *Load) place(ctx context.Context, b *corpus.Buffer) (err error) {
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
	l.scratch = append(l.scratch, make([]byte, max(b.Size-len(l.scratch), 0))...)
	if b.Init == nil {
		return nil
	}
	return l.gpu.CopyIn(ctx, p, b.Init)
}

// prepare encodes a launch.
func (l *Load) prepare(ctx context.Context, s *corpus.Launch) error {
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
	l.Steps = append(l.Steps, driver.Launch{
		Function: f, Grid: dim(s.Grid), Block: dim(s.Block), SharedBytes: s.SharedBytes, Params: params,
	})
	return nil
}

func dim(d [3]uint32) driver.Dim { return driver.Dim{X: d[0], Y: d[1], Z: d[2]} }

// Repeatable reports whether the case's launches may run several times between two checks: its
// results don't depend on how often they did.
func (l *Load) Repeatable() bool { return len(l.Case.Restore()) == 0 }

// Run launches the case's steps on ch, waits, and checks every buffer, including that read-only
// ones are unchanged. It may be called again. Wrong results are a [*corpus.Mismatch].
func (l *Load) Run(ctx context.Context, ch *driver.Channel) error {
	if err := l.launch(ctx, ch, 1, noObserver{}); err != nil {
		return err
	}
	return l.Case.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return l.read(ctx, ch, b) })
}

// Force makes every step whose kernel has form f use it, instead of the form chosen by measured
// cost.
func (l *Load) Force(f abi.PreemptForm) {
	for i := range l.Steps {
		if s := &l.Steps[i]; s.Function.Preemption().Forms&f != 0 {
			s.Preempt = &driver.Preempt{Form: f}
		}
	}
}

// observer is called for each launch that starts, and for each that ends well.
type observer interface {
	started()
	finished(p *driver.Pending, took time.Duration)
}

// noObserver ignores all calls.
type noObserver struct{}

func (noObserver) started()                                {}
func (noObserver) finished(*driver.Pending, time.Duration) {}

// rounds launches the case's steps that many times, waits, and checks the results.
func (l *Load) rounds(ctx context.Context, ch *driver.Channel, times int, o observer) error {
	if err := l.launch(ctx, ch, times, o); err != nil {
		return err
	}
	for i := range l.Case.Buffers {
		b := &l.Case.Buffers[i]
		if b.Want == nil {
			continue
		}
		got, err := l.read(ctx, ch, b)
		if err != nil {
			return err
		}
		if err := l.Case.Check(b.Name, got); err != nil {
			return err
		}
	}
	return nil
}

// launch launches the case's steps that many times and waits.
func (l *Load) launch(ctx context.Context, ch *driver.Channel, times int, o observer) error {
	for _, b := range l.Case.Restore() {
		if _, err := ch.CopyIn(ctx, l.buffers[b.Name], b.Init); err != nil {
			return fmt.Errorf("%v: restore %s: %w", l.Case, b.Name, err)
		}
	}
	n := times * len(l.Steps)
	if len(l.pending) < n {
		l.pending, l.began = make([]driver.Pending, n), make([]time.Time, n)
	}
	for i := range n {
		l.began[i] = time.Now()
		if err := ch.Enqueue(ctx, &l.pending[i], &l.Steps[i%len(l.Steps)]); err != nil {
			return fmt.Errorf("%v: %w", l.Case, err)
		}
		o.started()
	}
	for i := range n {
		if err := l.pending[i].Wait(ctx); err != nil {
			return fmt.Errorf("%v: %w", l.Case, err)
		}
		o.finished(&l.pending[i], time.Since(l.began[i]))
	}
	return nil
}

// read returns a buffer's contents, valid until the next read.
func (l *Load) read(ctx context.Context, ch *driver.Channel, b *corpus.Buffer) ([]byte, error) {
	got := l.scratch[:b.Size]
	if err := ch.CopyOut(ctx, got, l.buffers[b.Name]); err != nil {
		return nil, fmt.Errorf("%v: read %s: %w", l.Case, b.Name, err)
	}
	return got, nil
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
