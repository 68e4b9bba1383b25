package accounting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"vgpud/clock"
)

// RecordedGPU is one GPU whose records a [Recorder] reads.
type RecordedGPU struct {
	// Name is for errors.
	Name   string
	Source EventSource
	// Work is called at the end of each phase.
	Work    Workload
	Handler Handler
	Config  RecorderConfig
}

// Workload reports the work of all contexts.
type Workload interface {
	// Work calls f for each context with what it did since the last call. The argument of f is
	// valid until f returns.
	Work(now time.Duration, f func(*Work))
}

// Attributor is a [Workload] that can attribute processes whose work it did not report. It is an
// interface of its own since most workloads can't.
type Attributor interface {
	// GroupOf returns the group that is charged for a process that was on the engine, at now. ok is
	// false if there is none.
	GroupOf(now time.Duration, pid int) (g GroupID, ok bool)
}

// RecorderConfig says how often, and how, records are read. The zero value of each field stands for
// its default.
type RecorderConfig struct {
	// Period is the shortest length of a phase: 20 ms, about as often as a [Sampler] decides. See
	// [Pace].
	Period time.Duration
	// Always keeps a [Pausable] source recording.
	Always bool
	Meter  RecordMeterConfig
}

// WithDefaults returns c with its zero fields replaced by the defaults.
func (c RecorderConfig) WithDefaults() RecorderConfig {
	setDefault(&c.Period, 20*time.Millisecond)
	c.Meter = c.Meter.WithDefaults()
	return c
}

// The bounds of a period. Records wait in a buffer of the hardware's driver, which has room for
// those of about a second.
const (
	minPeriod = time.Millisecond
	maxPeriod = 250 * time.Millisecond
)

// Validate returns an error if the configuration is wrong, with defaults applied.
func (c RecorderConfig) Validate() error {
	if c = c.WithDefaults(); c.Period < minPeriod || c.Period > maxPeriod {
		return fmt.Errorf("accounting: interval %v: want %v to %v", c.Period, minPeriod, maxPeriod)
	}
	return nil
}

// Watch returns the [Config] of a [Sampler] that decides as often, in phases that are all of the same
// length. Policies learn the length of a round from it.
func (c RecorderConfig) Watch() Config {
	c = c.WithDefaults()
	return Config{Full: true, Poll: c.Period / 6, Quiet: c.Period - c.Period/6, Round: c.Period, Jitter: -1}.WithDefaults()
}

// Recorder reads the records of a GPU that records its own context switches, at the pace that its
// handler wants. At the end of each phase it also asks what the contexts did, and tells its handler
// of a phase in which nothing went unwatched. A [RecordMeter] does the sums.
//
// If the source is [Pausable] the recorder pauses the record while reports alone tell enough. To
// know that, it has a second meter do the same sums from the reports while there are records.
type Recorder struct {
	gpu      RecordedGPU
	clock    clock.Clock
	notified atomic.Bool                        // a channel came or went
	endWait  atomic.Pointer[context.CancelFunc] // ends the wait for a phase's end

	meter  *RecordMeter
	buf    [512]Switch
	pauser pauser
	// reports is the meter without records, nil if the record is never paused, and while it is.
	reports  *RecordMeter
	inferred Phase
	paused   atomic.Bool
	pauses   atomic.Uint64
	// reporting are the contexts that reported in the present phase, and reported those of the
	// phase before, in the order of their reports.
	reporting, reported []contextID

	phase  Phase
	pace   Pace
	polls  uint64
	cpu    atomic.Int64
	missed atomic.Uint64
}

// NewRecorder returns a recorder of a GPU that waits on c.
func NewRecorder(g RecordedGPU, c clock.Clock) (*Recorder, error) {
	if err := g.Config.Validate(); err != nil {
		return nil, err
	}
	if g.Source == nil || g.Handler == nil || g.Work == nil {
		return nil, fmt.Errorf("accounting: GPU %s lacks a source, a workload or a handler", g.Name)
	}
	g.Config = g.Config.WithDefaults()
	return &Recorder{gpu: g, clock: c}, nil
}

// Run reads records until ctx ends or they can't be read any more. It returns nil in the first
// case, and in the second the error that it also gave to the handler. It may be called once.
func (r *Recorder) Run(ctx context.Context) error {
	err := r.begin()
	for err == nil {
		if r.await(ctx) != nil {
			return nil
		}
		r.notified.Store(false)
		err = r.countCPU(r.step)
	}
	err = fmt.Errorf("accounting: GPU %s: read its record of context switches: %w", r.gpu.Name, err)
	r.gpu.Handler.Failed(err)
	return err
}

// await waits for the end of the present phase. That is an instant of a grid on which all phases of
// its length end or, after a call of Notify, a quarter of the length from now. It returns an error
// only if ctx ends.
func (r *Recorder) await(ctx context.Context) error {
	begun, length := r.clock.Now(), r.pace.Phase(r.gpu.Config.Period)
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	r.endWait.Store(&cancel)
	if r.notified.Load() {
		cancel() // Notify was called before endWait was set
	}
	err := clock.Tick(wait, r.clock, length)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return r.clock.WaitUntil(ctx, begun+length/minPhaseDivisor)
}

// Notify says that a channel of the GPU came or went, which may call for a decision. The present
// phase ends early (LoGA §4.2), but not before a quarter of its length.
func (r *Recorder) Notify(int) {
	if r.notified.Swap(true) {
		return
	}
	if cancel := r.endWait.Load(); cancel != nil {
		(*cancel)()
	}
}

// CPU returns the processor time that reading, summing and the handler's decisions have taken.
func (r *Recorder) CPU() time.Duration { return time.Duration(r.cpu.Load()) }

// Missed returns how often records were lost.
func (r *Recorder) Missed() uint64 { return r.missed.Load() }

// Paused reports whether the record is paused.
func (r *Recorder) Paused() bool { return r.paused.Load() }

// Pauses returns how often the record was paused.
func (r *Recorder) Pauses() uint64 { return r.pauses.Load() }

// begin makes the meters. Records from before are dropped.
func (r *Recorder) begin() error {
	now, err := r.gpu.Source.Now()
	if err != nil {
		return err
	}
	r.meter = NewRecordMeter(r.gpu.Config.Meter, now)
	if _, ok := r.gpu.Source.(Pausable); ok && !r.gpu.Config.Always {
		r.reports, r.pauser = NewRecordMeter(r.gpu.Config.Meter, now), newPauser(now)
	}
	return nil
}

// countCPU counts the processor time that f takes.
func (r *Recorder) countCPU(f func() error) error {
	// Both readings must be of the same thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadCPU()
	err := f()
	r.phase.CPU = threadCPU() - before
	r.cpu.Add(int64(r.phase.CPU))
	return err
}

// step ends a phase.
func (r *Recorder) step() error {
	cpu := r.phase.CPU // of the step before
	// In this order, so that all records and reports of the time before now are known.
	now, err := r.gpu.Source.Now()
	if err != nil {
		return err
	}
	if err := r.read(); err != nil {
		return err
	}
	r.gpu.Work.Work(now, r.report)
	if a, ok := r.gpu.Work.(Attributor); ok {
		r.meter.Attribute(now, a.GroupOf)
	}
	r.meter.Cut(now, &r.phase)
	if err := r.pause(now); err != nil {
		return err
	}
	r.phase.Polls, r.phase.CPU, r.polls = r.polls, cpu, 0
	r.pace = r.gpu.Handler.PollEnded(&r.phase).Pace
	return nil
}

// report gives the meters what a context did.
func (r *Recorder) report(w *Work) {
	r.meter.Report(w)
	if r.reports != nil {
		r.reports.Report(w)
	}
	r.reporting = append(r.reporting, contextID{pid: w.PID, group: w.Group})
}

// pause pauses or resumes the record, if the phase that has ended calls for it.
func (r *Recorder) pause(now time.Duration) error {
	changed := !slices.Equal(r.reporting, r.reported)
	r.reported, r.reporting = r.reporting, r.reported[:0]
	switch {
	case r.pauser.paused:
		if !r.pauser.inferred(&r.phase, changed) {
			return nil
		}
		r.reports = NewRecordMeter(r.gpu.Config.Meter, now)
		r.reports.learnFrom(r.meter)
		r.paused.Store(false)
		return r.gpu.Source.(Pausable).Resume()
	case r.reports != nil:
		r.reports.Cut(now, &r.inferred)
		if !r.pauser.recorded(&r.phase, &r.inferred, changed) {
			return nil
		}
		r.meter.Lost()
		r.meter.learnFrom(r.reports)
		r.reports = nil
		r.paused.Store(true)
		r.pauses.Add(1)
		return r.gpu.Source.(Pausable).Pause()
	}
	return nil
}

// read gives the meter all records that there are.
func (r *Recorder) read() error {
	for {
		n, err := r.gpu.Source.Read(r.buf[:])
		r.polls++
		for _, sw := range r.buf[:n] {
			r.meter.Record(sw)
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
