package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"vgpud/clock"
	"vgpud/guestagent/driver"
)

// Begin is a measurement of how long it takes until a context is there.
type Begin struct {
	// Times is how many contexts are created, one after the other, and PauseMicros how long the guest
	// waits before each, so that the host can prepare for it.
	Times       int   `json:"times"`
	PauseMicros int64 `json:"pause_us,omitempty"`
	// MemoryBytes has the contexts float, with that much memory each.
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`
}

// BeginReport is the result: a line of JSON.
type BeginReport struct {
	// Seconds are from the request for each context until it could be used, and FirstSeconds until its
	// first kernel had run.
	Seconds      []float64 `json:"seconds"`
	FirstSeconds []float64 `json:"first_kernel_seconds"`
	// WaitedSeconds are what the host says of them: the wait for a GPU alone.
	WaitedSeconds []float64 `json:"waited_seconds"`
}

func (p *Plan) measureBegin(ctx context.Context, bus driver.Bus, out io.Writer) (err error) {
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	var r BeginReport
	for range p.Begin.Times {
		if err := p.Begin.once(ctx, dev, &r); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// once creates a context, runs an empty kernel in it, and closes it.
func (b *Begin) once(ctx context.Context, dev *driver.Device, r *BeginReport) (err error) {
	if err := clock.Sleep(ctx, clock.Real{}, time.Duration(b.PauseMicros)*time.Microsecond); err != nil {
		return err
	}
	var o driver.ContextOptions
	if b.MemoryBytes > 0 {
		o.Task = &driver.Task{MemoryBytes: b.MemoryBytes, Blocks: 1, Threads: 32}
	}
	begin := time.Now()
	gpu, err := dev.NewContext(ctx, o)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	defer func() { err = errors.Join(err, gpu.Close()) }()
	f, err := LoadEmpty(ctx, gpu)
	if err != nil {
		return err
	}
	l, err := gpu.Own().Launch(ctx, f, driver.Dim{X: 1}, driver.Dim{X: 32}, 0)
	if err != nil {
		return err
	}
	if err := l.Wait(ctx); err != nil {
		return err
	}
	r.Seconds, r.FirstSeconds = append(r.Seconds, took.Seconds()), append(r.FirstSeconds, time.Since(begin).Seconds())
	at, err := gpu.Placement()
	if err != nil {
		return err
	}
	r.WaitedSeconds = append(r.WaitedSeconds, at.Waited.Seconds())
	return nil
}
