package scheduler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/events"
)

// reopenEvery is how often it is tried to open a GPU again that is gone.
const reopenEvery = 500 * time.Millisecond

// LoopOptions configure a loop. Open must be set.
type LoopOptions struct {
	// Open opens the GPU to be watched, at first and each time that it was gone.
	Open     func(ctx context.Context) (gpu.Monitor, error)
	Watching Watching
	// Pinned keeps the polling thread on processor CPU: see [accounting.SpareCPU].
	Pinned bool
	CPU    int
}

// Loop watches one GPU in real time and runs the GPU's scheduler. It opens the GPU again each time
// that it was gone.
type Loop struct {
	*Scheduler
	lo LoopOptions

	// watching is taken before the scheduler's locks.
	watching     sync.Mutex
	wanted       Watching
	opened       opened
	next         *watch             // takes the place of opened.watch when stopWatching has ended that; nil is none
	stopWatching context.CancelFunc // nil while nothing watches
	earlierCPU   time.Duration      // processor time of the watchers before
}

// opened is a GPU as it is open, and how it is watched.
type opened struct {
	device gpu.Monitor
	props  gpu.Properties
	watch
}

// watch is a watcher with its source. config is how its rounds are planned.
type watch struct {
	source  statusSource
	watcher watcher
	config  accounting.Config
}

// gpu returns what the scheduler needs to know of an open GPU.
func (o *opened) gpu() GPU {
	_, controllable := o.device.(gpu.Controller)
	return GPU{Properties: o.props, Watch: o.config, ByExecutors: o.source.byExecutors(), Controllable: controllable}
}

// close gives the GPU back.
func (o *opened) close() error { return errors.Join(o.source.close(), o.device.Close()) }

// OpenLoop opens a GPU to be watched and shared. Run runs the loop, and Close closes it.
func OpenLoop(ctx context.Context, o Options, lo LoopOptions) (*Loop, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	l := &Loop{Scheduler: s, lo: lo, wanted: lo.Watching}
	s.notify = l.endRound
	if l.opened, err = l.open(ctx); err != nil {
		return nil, err
	}
	s.SetGPU(l.opened.gpu())
	return l, nil
}

// open opens the GPU to be watched.
func (l *Loop) open(ctx context.Context) (o opened, err error) {
	if o.device, err = l.lo.Open(ctx); err != nil {
		return o, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	l.watching.Lock()
	wanted := l.wanted
	l.watching.Unlock()
	if o.source, err = chooseSource(o.device, wanted.Source, statusSource{}); err != nil {
		return o, err
	}
	if o.source.kind == SourceLaunches {
		l.o.Log.Warn("guests are charged by what their own processes say", "gpu", l.o.Name, "reason", cmp.Or(o.source.reason, "asked for"))
	}
	o.props = o.device.Properties()
	o.watch, err = l.prepare(o.source, wanted)
	return o, err
}

// prepare returns a watcher that goes by a source.
func (l *Loop) prepare(source statusSource, by Watching) (w watch, err error) {
	w.source = source
	if source.byExecutors() {
		w.config = by.Records.Watch()
		events := source.events
		if source.kind == SourceLaunches {
			events = source.launches
		}
		config := by.Records
		config.Always = by.Source == SourceEvents
		w.watcher, err = accounting.NewRecorder(accounting.RecordedGPU{
			Name: l.o.Name, Source: events, Work: l.Scheduler, Handler: l.Scheduler, Config: config,
		}, l.o.Clock)
		return w, err
	}
	w.config = by.Registers
	w.watcher, err = accounting.NewSampler([]accounting.SampledGPU{
		{Name: l.o.Name, Source: source.registers, Handler: l.Scheduler, Config: by.Registers},
	}, accounting.SamplerOptions{Pinned: l.lo.Pinned, CPU: l.lo.CPU})
	return w, err
}

// Run watches the GPU and runs timers until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { l.keepTime(ctx, &threadAlarm{log: l.o.Log}) })
	defer wg.Wait()
	for {
		failed := l.watchUntilEnd(ctx)
		if ctx.Err() != nil {
			return
		}
		// After a failure nothing is shared until the GPU is opened again. The watcher's successor is
		// dropped then.
		if !failed && l.switchWatcher() {
			continue
		}
		if err := l.closeEvents(); err != nil {
			l.o.Log.Debug("stop watching a GPU that is gone", "gpu", l.o.Name, "err", err)
		}
		again, err := l.reopen(ctx)
		if err != nil {
			return // ctx has ended
		}
		unused, current := l.replace(ctx, again)
		if err := unused.close(); err != nil {
			l.o.Log.Debug("close a GPU that was gone", "gpu", l.o.Name, "err", err)
		}
		if !current {
			return
		}
		l.o.Log.Info("GPU is back", events.Kind(events.GPURecovered), "gpu", l.o.Name)
		l.Changed(0)
	}
}

// Close gives the GPU back, once Run has returned.
func (l *Loop) Close() error {
	l.watching.Lock()
	defer l.watching.Unlock()
	return l.opened.close()
}

// Device returns the GPU as it is open now.
func (l *Loop) Device() gpu.Monitor {
	l.watching.Lock()
	defer l.watching.Unlock()
	return l.opened.device
}

// endRound ends the present round early.
func (l *Loop) endRound() {
	l.watching.Lock()
	w := l.opened.watcher
	l.watching.Unlock()
	w.Notify(0)
}

// Counts returns the GPU's own account, which is empty if it keeps none.
func (l *Loop) Counts() gpu.Counts {
	device := l.Device()
	counted, ok := device.(gpu.Counted)
	if !ok {
		return gpu.Counts{}
	}
	c, err := counted.Counts()
	if err != nil {
		l.trouble(device, err)
	}
	return c
}

// trouble notes, once, that the GPU does not answer, if it is still open as it was.
func (l *Loop) trouble(device gpu.Monitor, err error) {
	l.watching.Lock()
	defer l.watching.Unlock()
	if l.opened.device == device && l.SetProblem(err) {
		l.o.Log.Error("GPU does not answer", events.Kind(events.GPUFailed), "gpu", l.o.Name, "err", err)
	}
}

// closeEvents ends the recording, of which there may be one at a time. Nothing watches the GPU.
func (l *Loop) closeEvents() error {
	l.watching.Lock()
	defer l.watching.Unlock()
	old := l.opened.source
	l.opened.source.events = nil
	return old.close()
}

// reopen tries to open the GPU until that succeeds. The error is the end of ctx.
func (l *Loop) reopen(ctx context.Context) (opened, error) {
	for {
		if err := clock.Sleep(ctx, l.o.Clock, reopenEvery); err != nil {
			return opened{}, err
		}
		o, err := l.open(ctx)
		if err == nil {
			return o, nil
		}
		l.o.Log.Debug("GPU is not back", "gpu", l.o.Name, "err", err)
	}
}

// watchUntilEnd has the watcher watch the GPU until ctx ends, the GPU is gone, or another watcher
// is to take its place. It reports whether the scheduler was told of a failure.
func (l *Loop) watchUntilEnd(ctx context.Context) (failed bool) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	there, cancel := context.WithCancel(ctx)
	defer cancel()
	l.watching.Lock()
	o, replaced := l.opened, l.next != nil
	l.stopWatching = cancel
	l.watching.Unlock()
	if replaced {
		return false
	}
	if lost, ok := o.device.(gpu.Losable); ok {
		// Its registers keep their last values when its process is killed.
		waiting.Go(func() {
			select {
			case <-lost.Lost():
				cancel()
			case <-there.Done():
			}
		})
	}
	// The watcher has told the scheduler of an error.
	if err := o.watcher.Run(there); err != nil {
		l.o.Log.Error("watcher ended", "gpu", l.o.Name, "err", err)
		return true
	}
	l.watching.Lock()
	replaced = l.next != nil
	l.watching.Unlock()
	if ctx.Err() != nil || replaced {
		return false
	}
	l.Failed(gpu.ErrLost)
	return true
}

// replace puts a GPU that is back in the place of the one that is gone, and returns the one of the
// two that is not used any more. Once ctx has ended nothing changes, and current is false.
func (l *Loop) replace(ctx context.Context, again opened) (unused opened, current bool) {
	l.watching.Lock()
	defer l.watching.Unlock()
	if ctx.Err() != nil {
		return again, false
	}
	old := l.opened
	if err := l.schedule(nil); err != nil {
		l.o.Log.Debug("close what was to watch a GPU that was gone", "gpu", l.o.Name, "err", err)
	}
	l.opened = again
	l.earlierCPU += old.watcher.CPU()
	l.SetGPU(again.gpu())
	l.Recover()
	return old, true
}

// SetWatching has the GPU watched in another way from now on. It changes nothing if the GPU is
// already watched that way, or about to be.
func (l *Loop) SetWatching(by Watching) error {
	l.watching.Lock()
	defer l.watching.Unlock()
	if by == l.wanted {
		return nil
	}
	have := l.opened.source
	if have.kind == SourceEvents && have.events == nil {
		l.wanted = by // the GPU is gone, and will be opened as by says
		return nil
	}
	if l.next != nil {
		have = have.or(l.next.source)
	}
	source, err := chooseSource(l.opened.device, by.Source, have)
	if err != nil {
		return err
	}
	next, err := l.prepare(source, by)
	if err != nil {
		if source.events != have.events {
			err = errors.Join(err, source.close())
		}
		return err
	}
	l.wanted = by
	err = l.schedule(&next)
	if l.stopWatching != nil {
		l.stopWatching()
	}
	return err
}

// schedule sets which watcher is next, or none, and drops the one that was to be.
//
// Preconditions: l.watching is held.
func (l *Loop) schedule(next *watch) error {
	dropped := l.next
	l.next = next
	if dropped == nil || dropped.source.events == l.opened.source.events || next != nil && dropped.source.events == next.source.events {
		return nil
	}
	return dropped.source.close()
}

// switchWatcher puts the next watcher, if there is one, in the place of the one that has ended.
func (l *Loop) switchWatcher() bool {
	l.watching.Lock()
	if l.next == nil {
		l.watching.Unlock()
		return false
	}
	old := l.opened.watch
	l.opened.watch, l.next = *l.next, nil
	now := l.opened.source
	l.earlierCPU += old.watcher.CPU()
	l.SetGPU(l.opened.gpu())
	l.watching.Unlock()
	if old.source.byExecutors() && !now.byExecutors() {
		l.stopRecording()
	}
	if old.source.events == now.events {
		return true
	}
	if err := old.source.close(); err != nil {
		l.o.Log.Warn("stop watching a GPU", "gpu", l.o.Name, "err", err)
	}
	return true
}

// WatcherStatus is what there is to report of how a GPU is watched.
type WatcherStatus struct {
	Source, SourceReason string // a source's name, and why it is not a better one
	CPU                  time.Duration
	RealTime             bool
	RealTimeProblem      string
	// RecordsLost counts losses of the GPU's own record, and RecordPauses its pauses. RecordPaused
	// reports whether it is paused now.
	RecordsLost, RecordPauses uint64
	RecordPaused              bool
}

// WatcherStatus returns what there is to report of how the GPU is watched.
func (l *Loop) WatcherStatus() WatcherStatus {
	l.watching.Lock()
	defer l.watching.Unlock()
	w := &l.opened.watch
	st := WatcherStatus{Source: w.source.kind, SourceReason: w.source.reason, CPU: l.earlierCPU + w.watcher.CPU()}
	switch r := w.watcher.(type) {
	case *accounting.Sampler:
		p := r.Priority()
		st.RealTime, st.RealTimeProblem = p.Realtime, p.Reason
	case *accounting.Recorder:
		st.RealTimeProblem = "not asked for: nothing is polled"
		st.RecordsLost, st.RecordPauses, st.RecordPaused = r.Missed(), r.Pauses(), r.Paused()
	}
	return st
}
