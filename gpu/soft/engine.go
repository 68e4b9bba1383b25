package soft

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/eventtable"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/simt"
)

// contextSpace is the size of a context's address space. The spaces are disjoint, so that a pointer
// of one context is invalid in another.
const (
	contextSpace = 16 << 30
	contextBase  = 0x0200_0000_0000
)

// Engine is a running soft GPU. Its methods are safe for concurrent use.
type Engine struct {
	o     Options
	costs *simt.CostModel
	regs  *regFile
	used  budget // of the GPU's memory
	code  budget // of the host's memory, used by compiled modules

	epoch time.Time // with Go's monotonic reading, which needs no system call
	base  time.Duration

	mu      sync.Mutex
	calls   []*call
	closed  bool
	owners  map[string]*owner // by name
	pending atomic.Int32      // calls waiting, in calls and in batch
	door    *doorbellSet
	own     doorbell // rung by do
	stopped chan struct{}

	// Owned by the pacing thread.
	m        *machine.Machine
	contexts []*engineContext
	queues   []*queue // of all contexts
	pollers  []*eventPoller
	events   eventtable.Table
	active   []*command
	labels   map[string]machine.Usage
	pacing   Pacing
	begun    time.Duration
	stopping bool
	batch    []*call // taken from calls and not run yet
	wakeCost time.Duration
	spurious int // consecutive rings without a reason
	gridID   uint64
}

type call struct {
	fn   func()
	done chan struct{}
	ran  bool
}

// Start starts a soft GPU. The caller closes it.
func Start(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	e := &Engine{o: o, costs: o.costs(), stopped: make(chan struct{}), labels: map[string]machine.Usage{}, owners: map[string]*owner{}}
	e.used.limit, e.code.limit = o.MemoryBytes, o.CodeBytes
	e.setClock()
	var err error
	if e.regs, err = newRegFile(e.now()); err != nil {
		return nil, fmt.Errorf("start the soft GPU: %w", err)
	}
	if e.door, err = newDoorbellSet(); err != nil {
		_ = e.regs.close()
		return nil, fmt.Errorf("start the soft GPU: %w", err)
	}
	if e.own, err = e.door.newDoorbell(); err != nil {
		_ = e.door.close()
		_ = e.regs.close()
		return nil, fmt.Errorf("start the soft GPU: %w", err)
	}
	e.m = machine.New(o.Machine, e.now(), e.regs)
	started := make(chan struct{})
	go e.pace(started)
	<-started
	return e, nil
}

// setClock finds the offset of CLOCK_MONOTONIC to Go's monotonic readings. It uses the fastest of
// several tries, so that the clock is correct to less than a microsecond.
func (e *Engine) setClock() {
	best := time.Hour
	for range 16 {
		before := time.Now()
		base := clock.Real{}.Now()
		if took := time.Since(before); took < best {
			best, e.epoch, e.base = took, before, base-took/2
		}
	}
}

// now returns the GPU's time: CLOCK_MONOTONIC.
func (e *Engine) now() time.Duration { return e.base + time.Since(e.epoch) }

// Now returns the GPU's time.
func (e *Engine) Now() time.Duration { return e.now() }

// Properties returns the GPU's properties.
func (e *Engine) Properties() gpu.Properties { return e.o.properties() }

// do runs fn on the pacing thread, between two steps, and waits for it. It fails if the engine is
// closed.
func (e *Engine) do(fn func()) error {
	c := &call{fn: fn, done: make(chan struct{})}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fmt.Errorf("soft GPU is closed: %w", gpu.ErrLost)
	}
	e.calls = append(e.calls, c)
	e.pending.Add(1)
	e.own.ring()
	e.mu.Unlock()
	<-c.done
	if !c.ran {
		return fmt.Errorf("soft GPU is closed: %w", gpu.ErrLost)
	}
	return nil
}

// runCalls runs waiting calls in order, for at most a chunk or one call. The rest wait until
// launches have had a chunk.
func (e *Engine) runCalls() {
	if e.pending.Load() == 0 {
		return
	}
	for until := e.now() + chunk; ; {
		if len(e.batch) == 0 {
			e.mu.Lock()
			e.batch, e.calls = e.calls, nil
			e.mu.Unlock()
		}
		if len(e.batch) == 0 {
			return
		}
		c := e.batch[0]
		e.batch = e.batch[1:]
		c.fn()
		c.ran = true
		e.pending.Add(-1)
		close(c.done)
		if e.now() >= until {
			return
		}
	}
}

// Registers returns the register file, which is read-only through it. The caller closes it.
func (e *Engine) Registers() (*os.File, error) {
	fd, err := unix.FcntlInt(e.regs.fd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hand out the register file: %w", err)
	}
	return os.NewFile(uintptr(fd), "vgpud-soft-registers"), nil
}

// Usage returns the GPU's exact usage.
func (e *Engine) Usage() (Usage, error) {
	var u Usage
	err := e.do(func() {
		e.step(e.now())
		u.Now = e.m.Now()
		u.Machine = e.m.Totals()
		u.Pacing = e.pacing
		u.Pacing.CPU = threadCPU()
		sums := map[string]machine.Usage{}
		for label, s := range e.labels {
			sums[label] = s
		}
		for _, c := range e.contexts {
			g := GroupUsage{Group: c.Group(), Label: c.o.Label, Usage: c.group.Usage()}
			u.Groups = append(u.Groups, g)
			sums[g.Label] = sum(sums[g.Label], g.Usage)
		}
		for label, s := range sums {
			u.Labels = append(u.Labels, LabelUsage{Label: label, Usage: s})
		}
	})
	slices.SortFunc(u.Groups, func(a, b GroupUsage) int { return cmp.Compare(a.Group, b.Group) })
	slices.SortFunc(u.Labels, func(a, b LabelUsage) int { return cmp.Compare(a.Label, b.Label) })
	return u, err
}

func sum(a, b machine.Usage) machine.Usage {
	return machine.Usage{Busy: a.Busy + b.Busy, Switching: a.Switching + b.Switching, Launches: a.Launches + b.Launches,
		Preemptions: a.Preemptions + b.Preemptions}
}

// maxLabels limits the labels of closed contexts whose usage is kept.
const maxLabels = 1024

// remember adds a closed context's usage to that of its label.
func (e *Engine) remember(label string, u machine.Usage) {
	if _, known := e.labels[label]; !known && len(e.labels) >= maxLabels {
		return
	}
	e.labels[label] = sum(e.labels[label], u)
}

// Lost returns a channel that is closed when the engine has ended.
func (e *Engine) Lost() <-chan struct{} { return e.stopped }

// Close ends running launches, closes all contexts, and stops the engine. Readers of the register
// file see that the GPU is gone.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	if first {
		e.calls = append(e.calls, &call{fn: func() { e.stopping = true }, done: make(chan struct{})})
		e.pending.Add(1)
		e.own.ring()
	}
	e.mu.Unlock()
	<-e.stopped
	if !first {
		return nil
	}
	e.regs.gone()
	if err := e.own.close(); err != nil {
		return fmt.Errorf("close the soft GPU: %w", err)
	}
	if err := e.door.close(); err != nil {
		return fmt.Errorf("close the soft GPU: %w", err)
	}
	return e.regs.close()
}
