package accounting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/internal/futex"
)

// SampledGPU is one GPU that a [Sampler] polls.
type SampledGPU struct {
	// Name is for errors.
	Name    string
	Source  Source
	Handler Handler
	Config  Config
}

// SamplerOptions say how the polling thread runs. The zero value is usable.
type SamplerOptions struct {
	// Priority is the level of SCHED_FIFO to ask for, 10 by default. A negative level asks for
	// none.
	Priority int
	// Pinned keeps the thread on processor CPU: see [SpareCPU].
	Pinned bool
	CPU    int
	// ProcRoot is /proc by default. Tests set another directory.
	ProcRoot string
}

// Sampler polls one or more GPUs live, on one operating system thread of its own (LoGA §4.2 and
// §5.6). [NewSampler] makes it, and Run runs it.
type Sampler struct {
	gpus     []*sampling
	options  SamplerOptions
	wake     atomic.Uint32 // futex: counts reasons to wake the thread
	wakePark chan struct{} // has room for one: wakes the thread while it is parked
	stop     atomic.Bool
	priority atomic.Pointer[Priority]
	cpu      atomic.Int64
}

// NewSampler returns a sampler of the given GPUs.
func NewSampler(gpus []SampledGPU, o SamplerOptions) (*Sampler, error) {
	if len(gpus) == 0 {
		return nil, errors.New("accounting: a sampler needs a GPU")
	}
	if o.Priority == 0 {
		o.Priority = 10
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	s := &Sampler{options: o, wakePark: make(chan struct{}, 1)}
	for _, g := range gpus {
		if err := g.Config.Validate(); err != nil {
			return nil, err
		}
		if g.Config.Full && len(gpus) > 1 {
			return nil, fmt.Errorf("accounting: GPU %s is to be polled all the time, so it needs a sampler of its own", g.Name)
		}
		if g.Source == nil || g.Handler == nil {
			return nil, fmt.Errorf("accounting: GPU %s lacks a source or a handler", g.Name)
		}
		state := newSampling(g)
		state.messages = make(chan message, 3)
		s.gpus = append(s.gpus, state)
	}
	s.priority.Store(&Priority{Reason: "not started"})
	return s, nil
}

// Run polls until ctx ends or no GPU can be read any more. It returns nil in the first case and the
// last error in the second. It may be called once.
//
// While it runs, GOMAXPROCS is one higher than before: a thread that returns from sleeping needs
// one of the Go scheduler's places at once, whatever its priority is with the kernel.
func (s *Sampler) Run(ctx context.Context) error {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	defer func() { runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)-1)) }()

	var handlers sync.WaitGroup
	for _, g := range s.gpus {
		handlers.Go(g.serve)
	}
	defer handlers.Wait()

	release := context.AfterFunc(ctx, func() {
		s.stop.Store(true)
		s.wakeThread()
	})
	defer release()

	done := make(chan error)
	go func() {
		// Never unlocked, so that the thread ends with its priority.
		runtime.LockOSThread()
		done <- newThread(s).run()
	}()
	return <-done
}

// Notify says that a channel of a GPU came or went, which may call for a decision. The present
// phase ends early (LoGA §4.2), but not before a quarter of its length, since a guest could
// otherwise have the GPU polled all the time by creating and destroying channels. Further
// notifications before the end of the phase do not wake the thread again.
func (s *Sampler) Notify(gpu int) {
	if !s.gpus[gpu].notified.Swap(true) {
		s.wakeThread()
	}
}

// Priority returns the scheduling that the polling thread was granted. It is known once Run runs.
func (s *Sampler) Priority() Priority { return *s.priority.Load() }

// CPU returns the processor time that the polling thread has used in all.
func (s *Sampler) CPU() time.Duration { return time.Duration(s.cpu.Load()) }

// wakeThread wakes the thread if it sleeps.
func (s *Sampler) wakeThread() {
	s.wake.Add(1)
	futex.Wake(&s.wake)
	select {
	case s.wakePark <- struct{}{}:
	default: // the thread is about to wake anyway
	}
}
