package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vgpud/accounting"
	"vgpud/gpu"
	"vgpud/mediator/api"
)

// watcher watches a GPU and tells its share: an accounting.Sampler, or an
// accounting.Recorder.
type watcher interface {
	Run(ctx context.Context) error
	Notify(gpu int)
	CPU() time.Duration
}

// sight is by what a GPU is watched.
type sight struct {
	// kind is registers, events or launches, and why is why it is not what would be better.
	kind, why string
	registers accounting.Source
	events    accounting.EventSource
	launches  accounting.EventSource // which has none
}

// with is the sight with what other sees besides.
func (s sight) with(other sight) sight {
	if s.registers == nil {
		s.registers = other.registers
	}
	if s.events == nil {
		s.events = other.events
	}
	return s
}

// look finds out by what a GPU can be watched, of which have is open. wanted is a
// source's name, or auto: registers where they can be read, since they alone tell
// busy from idle without asking the guests' executors; else the GPU's own record of
// context switches; else, where this GPU can't be asked for either, what the executors
// say. Where it can and refuses, that is an error: the operator is to know.
func look(device gpu.Monitor, wanted string, have sight) (s sight, err error) {
	if wanted == api.SourceLaunches {
		return byLaunches(device, ""), nil
	}
	s.kind = api.SourceRegisters
	if wanted != api.SourceEvents {
		if s.registers, err = registersOf(device, have.registers); err == nil || wanted == api.SourceRegisters {
			return s, err
		}
		s.why = err.Error()
	}
	s.kind = api.SourceEvents
	s.events, err = eventsOf(device, have.events)
	if err == nil || s.why == "" {
		return s, err
	}
	why := fmt.Sprintf("%s; and %v", s.why, err)
	if errors.Is(err, gpu.ErrUnsupported) {
		return byLaunches(device, why), nil
	}
	return s, fmt.Errorf("its guests can't be accounted: %s; and %w", s.why, err)
}

// byLaunches is the sight of what the guests' executors say alone.
func byLaunches(device gpu.Monitor, why string) sight {
	return sight{kind: api.SourceLaunches, why: why, launches: accounting.Unrecorded{Clock: device}}
}

func registersOf(device gpu.Monitor, have accounting.Source) (source accounting.Source, err error) {
	if have != nil {
		return have, nil
	}
	sampled, ok := device.(gpu.Sampled)
	if !ok {
		return nil, fmt.Errorf("its status can't be read: this kind of GPU shows none: %w", gpu.ErrUnsupported)
	}
	if source, err = sampled.Source(); err != nil {
		return nil, fmt.Errorf("its status can't be read: %w", err)
	}
	return source, nil
}

func eventsOf(device gpu.Monitor, have accounting.EventSource) (source accounting.EventSource, err error) {
	if have != nil {
		return have, nil // there may be one reader at a time
	}
	recording, ok := device.(gpu.Recording)
	if !ok {
		return nil, fmt.Errorf("its record of context switches can't be read: this kind of GPU keeps none: %w", gpu.ErrUnsupported)
	}
	if source, err = recording.Events(); err != nil {
		return nil, fmt.Errorf("its record of context switches can't be read: %w", err)
	}
	return source, nil
}

// told is whether executors are asked when they had something on the GPU.
func (s *sight) told() bool { return s.kind == api.SourceEvents || s.kind == api.SourceLaunches }

// close ends the recording, if there is one.
func (s *sight) close() error {
	if s.events == nil {
		return nil
	}
	if err := s.events.Close(); err != nil {
		return fmt.Errorf("end the record of context switches: %w", err)
	}
	return nil
}

// checkSource says which sources of accounting there are.
func checkSource(name string) error {
	switch name {
	case "", api.SourceAuto, api.SourceRegisters, api.SourceEvents, api.SourceLaunches:
		return nil
	}
	return fmt.Errorf("source %q: want one of %s: %w", name, strings.Join([]string{api.SourceAuto, api.SourceRegisters, api.SourceEvents, api.SourceLaunches}, ", "), api.ErrInvalid)
}

// watching is how a GPU is watched.
type watching struct {
	sight   sight
	watcher watcher
	// watch is how often: what the planner's rounds are made by.
	watch accounting.Config
}

// watching prepares to watch a GPU by what there is to see of it.
func (s *Service) watching(sh *share, by sight, c AccountingConfig) (w watching, err error) {
	w.sight = by
	if by.told() {
		config, source := c.recorder(), by.events
		if by.kind == api.SourceLaunches {
			source = by.launches
		}
		w.watch = config.Watch()
		w.watcher, err = accounting.NewRecorder(accounting.RecordedGPU{
			Name: sh.config.Name, Source: source, Work: sh, Handler: sh, Config: config,
		}, s.clock)
		return w, err
	}
	if w.watch, err = c.config(len(s.o.Config.GPUs)); err != nil {
		return w, err
	}
	w.watcher, err = accounting.NewSampler([]accounting.SampledGPU{
		{Name: sh.config.Name, Source: by.registers, Handler: sh, Config: w.watch},
	}, accounting.SamplerOptions{Pinned: s.pinned, CPU: s.cpu})
	return w, err
}

// show is what the API says of how the GPU is watched. watched is the processor time
// that others took for it.
func (w *watching) show(g *api.GPU, watched time.Duration) {
	if w.watcher == nil {
		return
	}
	g.AccountingSource, g.AccountingSourceReason = w.sight.kind, w.sight.why
	g.AccountingCPUSeconds = (watched + w.watcher.CPU()).Seconds()
	switch r := w.watcher.(type) {
	case *accounting.Sampler:
		p := r.Priority()
		g.RealTime, g.RealTimeProblem = p.Realtime, p.Reason
	case *accounting.Recorder:
		g.RealTimeProblem = "not asked for: nothing is polled"
		g.RecordsLost = r.Missed()
	}
}
