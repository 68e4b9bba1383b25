package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vgpud/accounting"
	"vgpud/gpu"
)

// The names of status sources: how a GPU is watched.
const (
	SourceAuto      = "auto"
	SourceRegisters = "registers" // its status registers, polled
	SourceEvents    = "events"    // its own record of context switches, without a pause
	SourceLaunches  = "launches"  // what executors record alone
)

// Watching says how a GPU is watched.
type Watching struct {
	// Source is one of the names above; empty is SourceAuto.
	Source string
	// Registers is for SourceRegisters, Records for the others.
	Registers accounting.Config
	Records   accounting.RecorderConfig
}

// watcher watches a GPU and tells its scheduler: an accounting.Sampler or an accounting.Recorder.
type watcher interface {
	Run(ctx context.Context) error
	Notify(gpu int)
	CPU() time.Duration
}

// statusSource is what a GPU is watched by.
type statusSource struct {
	// kind is a source's name, and reason why it is not a better one.
	kind, reason string
	registers    accounting.Source
	events       accounting.EventSource
	launches     accounting.EventSource // which records nothing
}

// or returns the source with what other has and it lacks.
func (s statusSource) or(other statusSource) statusSource {
	if s.registers == nil {
		s.registers = other.registers
	}
	if s.events == nil {
		s.events = other.events
	}
	return s
}

// chooseSource returns what a GPU is watched by, of which have is open already. wanted is a
// source's name. SourceAuto takes the registers if they can be read, since they alone tell busy
// from idle without asking the guests' executors; else the GPU's own record of context switches;
// else, if this GPU can't be asked for either, what the executors record. If it can be asked and
// refuses, that is an error, so that the operator knows. With SourceAuto the record is paused while
// what the executors record tells enough.
func chooseSource(device gpu.Monitor, wanted string, have statusSource) (s statusSource, err error) {
	if wanted == SourceLaunches {
		return launchSource(device, ""), nil
	}
	s.kind = SourceRegisters
	if wanted != SourceEvents {
		if s.registers, err = openRegisters(device, have.registers); err == nil || wanted == SourceRegisters {
			return s, err
		}
		s.reason = err.Error()
	}
	s.kind = SourceEvents
	s.events, err = openEvents(device, have.events)
	if err == nil || s.reason == "" {
		return s, err
	}
	reason := fmt.Sprintf("%s; and %v", s.reason, err)
	if errors.Is(err, gpu.ErrUnsupported) {
		return launchSource(device, reason), nil
	}
	return s, fmt.Errorf("its guests can't be accounted: %s; and %w", s.reason, err)
}

// launchSource returns the source that consists of what the guests' executors record alone.
func launchSource(device gpu.Monitor, reason string) statusSource {
	return statusSource{kind: SourceLaunches, reason: reason, launches: accounting.Unrecorded{Clock: device}}
}

func openRegisters(device gpu.Monitor, have accounting.Source) (source accounting.Source, err error) {
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

func openEvents(device gpu.Monitor, have accounting.EventSource) (source accounting.EventSource, err error) {
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

// byExecutors reports whether executors are asked when they had something on the GPU.
func (s *statusSource) byExecutors() bool { return s.kind == SourceEvents || s.kind == SourceLaunches }

// close ends the recording, if there is one.
func (s *statusSource) close() error {
	if s.events == nil {
		return nil
	}
	if err := s.events.Close(); err != nil {
		return fmt.Errorf("end the record of context switches: %w", err)
	}
	return nil
}
