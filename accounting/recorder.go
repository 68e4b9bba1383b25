package accounting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"vgpud/clock"
)

// Recorded is one GPU that a [Recorder] watches.
type Recorded struct {
	// Name is for errors.
	Name   string
	Source EventSource
	// Work is asked at the end of each interval.
	Work    Workload
	Handler Handler
	Config  RecorderConfig
}

// Workload is who knows what contexts had to do.
type Workload interface {
	// Work calls f with each context that there is, and what it did since the last
	// call. What f is given is valid until f returns.
	Work(now time.Duration, f func(*Work))
}

// Kin is a [Workload] that knows whose processes are of which it told nothing. It is
// apart since most do not ask.
type Kin interface {
	// Whose is the group that is charged for a process that was on the engine, at now;
	// ok is false where none is.
	Whose(now time.Duration, pid int) (g GroupID, ok bool)
}

// RecorderConfig says how often, and how, records are read. The zero value of each
// field stands for the default named there.
type RecorderConfig struct {
	// Interval is how often at most: 20 ms, about as often as a [Sampler] decides. See
	// [Pace].
	Interval time.Duration
	Spans    SpanConfig
}

// WithDefaults returns c with its zero fields replaced by the defaults.
func (c RecorderConfig) WithDefaults() RecorderConfig {
	setDefault(&c.Interval, 20*time.Millisecond)
	c.Spans = c.Spans.WithDefaults()
	return c
}

// The bounds of an interval. Records wait in a buffer of the hardware's driver,
// which has room for those of about a second.
const (
	minInterval = time.Millisecond
	maxInterval = 250 * time.Millisecond
)

// Validate says what is wrong with a configuration, defaults applied.
func (c RecorderConfig) Validate() error {
	if c = c.WithDefaults(); c.Interval < minInterval || c.Interval > maxInterval {
		return fmt.Errorf("accounting: interval %v: want %v to %v", c.Interval, minInterval, maxInterval)
	}
	return nil
}

// Watch is the [Config] of a [Sampler] that decides as often: what policies are
// told of the length of a round.
func (c RecorderConfig) Watch() Config {
	c = c.WithDefaults()
	return Config{Full: true, Poll: c.Interval / 6, Quiet: c.Interval - c.Interval/6, Round: c.Interval}.WithDefaults()
}

// Recorder watches a GPU that records its own context switches: it reads them at the
// pace that its handler wants, asks what the contexts had to do, and tells its handler of a phase in
// which nothing went unwatched. It is the live shell around a [SpanMeter].
type Recorder struct {
	gpu      Recorded
	clock    clock.Clock
	notified atomic.Bool                        // a channel came or went
	rouse    atomic.Pointer[context.CancelFunc] // ends the wait for a phase's end

	meter  *SpanMeter
	buf    [512]Switch
	phase  Phase
	pace   Pace
	polls  uint64
	cpu    atomic.Int64
	missed atomic.Uint64
}

// NewRecorder returns a recorder of a GPU, which waits on c.
func NewRecorder(g Recorded, c clock.Clock) (*Recorder, error) {
	if err := g.Config.Validate(); err != nil {
		return nil, err
	}
	if g.Source == nil || g.Handler == nil || g.Work == nil {
		return nil, fmt.Errorf("accounting: GPU %s lacks a source, a workload or a handler", g.Name)
	}
	g.Config = g.Config.WithDefaults()
	return &Recorder{gpu: g, clock: c}, nil
}

// Run watches until ctx ends, when it returns nil, or the record can't be read any
// more, when it returns the error that it told the handler of. It may be called
// once.
func (r *Recorder) Run(ctx context.Context) error {
	err := r.begin()
	for err == nil {
		if r.await(ctx) != nil {
			return nil
		}
		r.notified.Store(false)
		err = r.spend(r.step)
	}
	err = fmt.Errorf("accounting: GPU %s: read its record of context switches: %w", r.gpu.Name, err)
	r.gpu.Handler.Failed(err)
	return err
}

// await waits for the present phase's end: an instant of the grid that all phases of its
// length end on or, once somebody has called Notify, a quarter of its length from now.
// It returns an error only if ctx ends.
func (r *Recorder) await(ctx context.Context) error {
	begun, length := r.clock.Now(), r.pace.Phase(r.gpu.Config.Interval)
	wait, rouse := context.WithCancel(ctx)
	defer rouse()
	r.rouse.Store(&rouse)
	if r.notified.Load() {
		rouse() // in between
	}
	err := clock.Tick(wait, r.clock, length)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return r.clock.WaitUntil(ctx, begun+length/hurry)
}

// hurry is the divisor of a phase's length that it has at least: a guest could otherwise
// have the GPU looked at all the time by making and closing channels.
const hurry = 4

// Notify says that a channel of the GPU came or went, which may call for a decision: the
// present phase ends early (LoGA §4.2), though not before a quarter of its length.
func (r *Recorder) Notify(int) {
	if r.notified.Swap(true) {
		return
	}
	if rouse := r.rouse.Load(); rouse != nil {
		(*rouse)()
	}
}

// CPU is the processor time that reading and reckoning have taken in all, and
// what the handler decided.
func (r *Recorder) CPU() time.Duration { return time.Duration(r.cpu.Load()) }

// Missed is how often records were lost.
func (r *Recorder) Missed() uint64 { return r.missed.Load() }

// begin drops what was recorded before.
func (r *Recorder) begin() error {
	now, err := r.gpu.Source.Now()
	if err != nil {
		return err
	}
	r.meter = NewSpanMeter(r.gpu.Config.Spans, now)
	return nil
}

// spend counts the processor time that f takes.
func (r *Recorder) spend(f func() error) error {
	// Which thread's time it is must not change in between.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadCPU()
	err := f()
	r.phase.CPU = threadCPU() - before
	r.cpu.Add(int64(r.phase.CPU))
	return err
}

// step is what is done at the end of a phase.
func (r *Recorder) step() error {
	cpu := r.phase.CPU // of the step before
	// In this order, so that all that is told of the time before now is known.
	now, err := r.gpu.Source.Now()
	if err != nil {
		return err
	}
	if err := r.read(); err != nil {
		return err
	}
	r.gpu.Work.Work(now, r.meter.Worked)
	if k, ok := r.gpu.Work.(Kin); ok {
		r.meter.Unclaimed(now, k.Whose)
	}
	r.meter.Cut(now, &r.phase)
	r.phase.Polls, r.phase.CPU, r.polls = r.polls, cpu, 0
	r.pace = r.gpu.Handler.PollEnded(&r.phase).Pace
	return nil
}

// read takes in the records that there are.
func (r *Recorder) read() error {
	for {
		n, err := r.gpu.Source.Read(r.buf[:])
		r.polls++
		for _, sw := range r.buf[:n] {
			r.meter.Switched(sw)
		}
		switch {
		case errors.Is(err, ErrDropped):
			r.meter.Lost()
			r.missed.Add(1)
		case err != nil:
			return err
		case n < len(r.buf):
			return nil
		}
	}
}
