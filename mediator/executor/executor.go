package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/sched"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// What a guest may have of each thing at a time, in one context.
const (
	maxModules   = 1 << 10
	maxFunctions = 1 << 14
	maxEvents    = 1 << 14
	maxImage     = 64 << 20 // bytes of a module
	maxParams    = 32 << 10 // bytes of a kernel's parameters
	maxName      = 4 << 10  // bytes of a symbol
	maxFault     = 4 << 10  // bytes of a fault's text
)

// Features are those that the executor carries out; a command that needs
// another completes with [abi.StatusNotSupported].
const Features = abi.FeatureContexts | abi.FeatureInline | abi.FeatureEvents | abi.FeatureCopy3D | abi.FeatureGlobals |
	abi.FeatureFunctions | abi.FeatureLaunchAttributes | abi.FeaturePrintf | abi.FeatureGPUTime | abi.FeaturePreempt

// Options are what an executor works with. All fields but Log, Fault, LastFault,
// KernelTimeLimit, Elapsed and Ahead must be set.
type Options struct {
	Device  gpu.Device
	Context gpu.Context
	// Shared is BAR2 whole, and Windows where in it the windows begin that commands
	// may name.
	Shared  []byte
	Windows int
	Page    *ipc.ControlPage
	Slot    int
	Clock   clock.Clock
	Log     *slog.Logger
	// Fault is called, once, when a kernel has poisoned the context, and
	// ChannelFailed when a guest has broken the rules of a channel's rings; both
	// after the completions that were due were published.
	Fault         func(ipc.Fault)
	ChannelFailed func(ipc.ChannelFailure)
	// LastFault is the text of the fault that ended this context's
	// predecessor, to be told to the guest.
	LastFault string
	// KernelTimeLimit is how much GPU time a launch may use in all its runs; 0 is
	// no limit. Within a run the GPU sees to it.
	KernelTimeLimit time.Duration
	// Elapsed, if set, is a clock that goes on by as much as the context used of the
	// GPU, at least, for GPUs whose own stamps include others' time; see
	// [gpu.ContextOptions].
	Elapsed func() time.Duration
	// Ahead is ShallowAhead unless set.
	FetchLimit FetchLimit
}

// Executor serves one context. Step and Run belong to one goroutine; Open, Shut
// and SetVector may be called from any.
type Executor struct {
	o    Options
	slot *ipc.ContextSlot
	work ipc.WorkLog

	// requests are channels to be opened and closed; the owner of Step takes
	// them.
	mu       sync.Mutex
	requests []func()
	vectors  map[int]Interrupt

	channels  []*channel
	draining  []*channel // closed by the guest, with commands on the GPU
	modules   handles[*module]
	functions handles[*function]
	events    handles[*event]
	memory    allocations
	props     gpu.Properties

	priority     *priority     // of the process; nil: left alone
	suspension   suspension    // the newest
	offGPU       offTimes      // on the GPU's clock
	offHost      offTimes      // on the executor's
	launches     int           // on the GPU, of all channels; fills count too
	admitted     int           // of them, or about to be: see admission
	working      bool          // as told, see tellWorking
	admittedWork time.Duration // how long these will take
	admission    admission
	fills        int           // of them
	brief        int           // of these, those that fit by the time that they take
	filling      time.Duration // how long the brief ones will take
	zeroes       zeroes
	// refusedLoad is the newest module that there was no memory for.
	refusedLoad refusal

	words, bulk   service       // the executor's own channels, once they are needed
	controlBlocks controlBlocks // of launches on the GPU
	parked        *job          // for whose sake the context is off the GPU
	// undone is whether the context, which the page says is disabled, was enabled all the
	// same: see keeper.
	selfEnabled atomic.Bool

	// Of the launch that is being read.
	params []byte
	gl     gpu.Launch

	// yield gives the processor to whoever waits for it.
	yield func()

	poison    error      // what poisoned the context
	status    abi.Status // as completions say it
	lastFault string
	reports   []func() // to be called at the end of the step
}

// Interrupt raises an interrupt vector: an eventfd.
type Interrupt interface {
	Raise() error
	Close() error
}

// New makes an executor without channels.
func New(o Options) *Executor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FetchLimit == (FetchLimit{}) {
		o.FetchLimit = ShallowFetchLimit
	}
	work := o.Page.WorkLog(o.Slot)
	work.SetSince(0) // of its predecessor
	o.Page.Context(o.Slot).SetLeavesUnstarted()
	return &Executor{
		o:             o,
		work:          work,
		slot:          o.Page.Context(o.Slot),
		vectors:       make(map[int]Interrupt),
		controlBlocks: newBlocks(o.Context),
		modules:       newHandles[*module](maxModules),
		functions:     newHandles[*function](maxFunctions),
		events:        newHandles[*event](maxEvents),
		props:         o.Device.Properties(),
		lastFault:     o.LastFault,
		admission:     admission{admitter: o.Page.Admitter(o.Slot)},
		yield:         sched.Yield,
	}
}

// do has f called by the owner of Step, and wakes it.
func (x *Executor) do(f func()) {
	x.mu.Lock()
	x.requests = append(x.requests, f)
	x.mu.Unlock()
	x.slot.Wake()
}

// takeRequests carries out what was asked for since the last call.
func (x *Executor) takeRequests() bool {
	x.mu.Lock()
	requests := x.requests
	x.requests = nil
	x.mu.Unlock()
	for _, f := range requests {
		f()
	}
	return len(requests) > 0
}

// Open begins to serve a channel; done is called, by the owner of Step, with
// the error that kept it from that.
func (x *Executor) Open(c ipc.Channel, done func(error)) {
	x.do(func() { done(x.open(c)) })
}

func (x *Executor) open(c ipc.Channel) error {
	if x.find(c.Index) != nil {
		return fmt.Errorf("open channel %d: open already", c.Index)
	}
	ch, err := newChannel(x, c)
	if err != nil {
		return fmt.Errorf("open channel %d: %w", c.Index, err)
	}
	x.channels = append(x.channels, ch)
	x.o.Log.Debug("channel open", "channel", c.Index)
	return nil
}

// Shut stops serving a channel. What it has put on the GPU ends there; nothing
// more is written to its rings.
func (x *Executor) Shut(index int, done func(error)) {
	x.do(func() { done(x.shut(index)) })
}

func (x *Executor) shut(index int) error {
	ch := x.find(index)
	if ch == nil {
		return fmt.Errorf("close channel %d: not open", index)
	}
	keep := x.channels[:0]
	for _, other := range x.channels {
		if other != ch {
			keep = append(keep, other)
		}
	}
	x.channels = keep
	x.o.Log.Debug("channel closed", "channel", index)
	ch.shut()
	x.draining = append(x.draining, ch)
	return nil
}

// drain lets go of channels that were shut once nothing of them is on the GPU.
func (x *Executor) drain() {
	x.draining = slices.DeleteFunc(x.draining, func(ch *channel) bool {
		if !ch.drained() {
			return false
		}
		back := ch.freeMemory()
		if errors.Is(back, errWaits) {
			return false
		}
		if err := errors.Join(back, ch.close()); err != nil {
			x.o.Log.Warn("close a channel", "channel", ch.index, "err", err)
		}
		return true
	})
}

func (x *Executor) find(index int) *channel {
	for _, ch := range x.channels {
		if ch.index == index {
			return ch
		}
	}
	return nil
}

// SetVector replaces an interrupt vector, which the executor closes when it is
// replaced again; nil turns the vector off.
func (x *Executor) SetVector(index int, v Interrupt) {
	x.do(func() {
		if old := x.vectors[index]; old != nil {
			if err := old.Close(); err != nil {
				x.o.Log.Warn("close an interrupt vector", "vector", index, "err", err)
			}
		}
		x.vectors[index] = v
		if v != nil {
			// A completion may have come while there was no way to tell.
			x.raise(index)
		}
	})
}

// raise interrupts the guest. A vector that can't be raised costs the guest a
// wake-up, and the operator should know.
func (x *Executor) raise(vector int) {
	v := x.vectors[vector]
	if v == nil {
		return
	}
	if err := v.Raise(); err != nil {
		x.o.Log.Warn("raise an interrupt", "vector", vector, "err", err)
	}
}

// Step carries out what can be carried out now: it retires what the GPU has
// finished and, unless suspended, fetches and starts commands. It reports
// whether it did anything.
func (x *Executor) Step(suspended bool) bool {
	did := x.takeRequests()
	x.setSuspended(suspended)
	x.updateOffTimes()
	if x.overstays() {
		x.endContext()
	}
	x.drain()
	did = x.zeroes.retire(x) || did
	backlog, working := false, false
	for _, ch := range x.channels {
		if ch.retire() {
			did = true
			// What comes next may take as long to put on the GPU as it runs there.
			ch.publish()
			ch.accountDeferred()
		}
		if !suspended && ch.advance() {
			did = true
		}
		ch.publish()
		ch.accountDeferred()
		backlog, working = backlog || ch.backlog(), working || ch.working()
	}
	if !suspended {
		x.admission.settle(x)
	}
	x.slot.SetBacklog(backlog)
	x.publishWorking(working)
	for _, tell := range x.reports {
		tell()
	}
	x.reports = x.reports[:0]
	return did
}

// hold takes note of the beginning and end of suspensions on the GPU's clock.
func (x *Executor) setSuspended(suspended bool) {
	if suspended == x.suspension.on {
		return
	}
	now, err := x.o.Device.Now()
	if err != nil {
		x.fail(err)
		return
	}
	x.suspension.set(suspended, now)
	if suspended {
		x.admission.billed = x.o.Page.Bill().Used
	}
}

// fail poisons the context: err is what a kernel did, or the GPU's end.
func (x *Executor) fail(err error) {
	if x.poison != nil {
		return
	}
	// Of several channels' launches the one that was dropped may be looked at before
	// the one that faulted.
	if cause := x.o.Context.Fault(); cause != nil && errors.Is(err, gpu.ErrPoisoned) {
		err = cause
	}
	x.poison, x.status = err, statusOf(err)
	if !x.status.Poisons() {
		x.status = abi.StatusLaunchFailed
	}
	x.lastFault = truncate(guestText(err), maxFault)
	if x.status == abi.StatusDeviceLost {
		x.slot.SetLost()
		x.o.Page.AddChange()
	} else {
		x.slot.SetFaulted()
	}
	x.o.Log.Debug("context ended by a fault", "fault", err)
	x.report(func() {
		if x.o.Fault != nil {
			x.o.Fault(ipc.Fault{Code: uint32(errorCodeOf(x.status)), Text: x.lastFault})
		}
	})
}

// report has f called at the end of the step, when the guest can see the
// completions that came before.
func (x *Executor) report(f func()) { x.reports = append(x.reports, f) }

// truncate cuts s to at most n bytes.
func truncate(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// Close lets go of all channels and vectors. The context and the page are the
// caller's.
func (x *Executor) Close() error {
	var errs []error
	for _, ch := range append(x.channels, x.draining...) {
		errs = append(errs, ch.close())
	}
	x.channels, x.draining = nil, nil
	x.zeroes.close()
	errs = append(errs, x.words.close(), x.bulk.close())
	for _, v := range x.vectors {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	clear(x.vectors)
	return errors.Join(errs...)
}
