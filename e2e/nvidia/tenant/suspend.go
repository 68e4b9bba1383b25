package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/gpu"
)

// suspendWatch is the intended duration of the kernel that watches the clock, and suspendHold the
// time for which it is suspended.
const (
	suspendWatch = 30 * time.Millisecond
	suspendHold  = 5 * time.Millisecond
)

// suspend suspends a kernel that watches the clock, repeatedly.
func (t *tenant) suspend(ctx context.Context, s *Suspend) ([]Standstill, error) {
	b, ok := t.machine.(*bare)
	if !ok {
		return nil, errors.New("a guest's context is not its own to suspend")
	}
	hardware, ok := b.device.(gpu.Suspender)
	if !ok {
		return nil, errors.New("the GPU's driver can't suspend a context")
	}
	f, err := t.fixed.function(ctx, "watch")
	if err != nil {
		return nil, err
	}
	out, err := b.alloc(ctx, uint64(16*s.Blocks))
	if err != nil {
		return nil, err
	}
	watch := func(iterations int) (command, error) {
		params, err := f.params(u64(out), u32(uint32(iterations)))
		return command{function: f, grid: [3]uint32{uint32(s.Blocks), 1, 1}, block: [3]uint32{watchThreads, 1, 1}, params: params}, err
	}
	iterations, err := t.calibrate(ctx, watch)
	if err != nil {
		return nil, err
	}
	var all []Standstill
	for range s.Times {
		c, err := watch(iterations)
		if err != nil {
			return nil, err
		}
		still, err := t.once(ctx, b, hardware, &c, out, s.Blocks)
		if err != nil {
			return nil, err
		}
		all = append(all, still)
	}
	return all, nil
}

// watchThreads is the number of threads in a block: two blocks fill an SM.
const watchThreads = 1024

// calibrate returns the number of iterations that take suspendWatch.
func (t *tenant) calibrate(ctx context.Context, watch func(int) (command, error)) (int, error) {
	t.machine.lines(1, false)
	const few = 2000
	for range 2 { // the first loads the code
		c, err := watch(few)
		if err != nil {
			return 0, err
		}
		if err := t.machine.launch(ctx, 0, &c); err != nil {
			return 0, err
		}
		d, err := t.machine.wait(ctx, 0)
		if err != nil {
			return 0, err
		}
		if took := d.end - d.start; took > 0 {
			t.watchPer = took / few
		}
	}
	return int(suspendWatch / max(t.watchPer, 1)), nil
}

// once suspends a launch at a random moment and resumes it.
func (t *tenant) once(ctx context.Context, b *bare, hardware gpu.Suspender, c *command, out uint64, blocks int) (s Standstill, err error) {
	if err := b.launch(ctx, 0, c); err != nil {
		return s, err
	}
	nap(suspendWatch/10 + rand.N(suspendWatch/3))
	off, err := b.device.Now()
	if err != nil {
		return s, err
	}
	begin := time.Now()
	err = hardware.Suspend(b.context)
	s.Off = time.Since(begin)
	if err != nil {
		return s, fmt.Errorf("suspend: %w", err)
	}
	nap(suspendHold)
	on, err := b.device.Now()
	begin = time.Now()
	err = errors.Join(err, hardware.Resume(b.context))
	s.On = time.Since(begin)
	if err != nil {
		return s, fmt.Errorf("resume: %w", err)
	}
	if _, err := b.wait(ctx, 0); err != nil {
		return s, err
	}
	raw := make([]byte, 16*blocks)
	if err := b.copyOut(ctx, raw, out); err != nil {
		return s, err
	}
	gaps := make([]figure.Gap, blocks)
	for i := range gaps {
		gaps[i].Start = time.Duration(binary.LittleEndian.Uint64(raw[16*i:]))
		gaps[i].End = time.Duration(binary.LittleEndian.Uint64(raw[16*i+8:]))
	}
	var still figure.Still
	if still, s.Stopped = figure.Standstill(gaps); s.Stopped {
		s.Suspend, s.Resume, s.Whole = still.Stop-off, still.First-on, still.Last-on
	}
	return s, nil
}
