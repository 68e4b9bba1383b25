package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// Limits of what a guest may have in one context.
const (
	maxModules   = 1 << 10
	maxFunctions = 1 << 14
	maxEvents    = 1 << 14
	maxArrays    = 1 << 14
	maxTextures  = 1 << 15  // and surfaces
	maxImage     = 64 << 20 // bytes of a module
	maxParams    = 36 << 10 // bytes of a kernel's parameters, up to 32,764, and of its launch's attributes
	maxName      = 4 << 10  // bytes of a symbol
	maxFault     = 4 << 10  // bytes of a fault's text
)

// Features are those that the executor supports on any GPU. A command that needs another completes with
// [abi.StatusNotSupported].
const Features = abi.FeatureContexts | abi.FeatureInline | abi.FeatureEvents | abi.FeatureCopy3D | abi.FeatureGlobals |
	abi.FeatureFunctions | abi.FeatureLaunchAttributes | abi.FeaturePrintf | abi.FeatureGPUTime | abi.FeaturePreempt |
	abi.FeatureLimits | abi.FeatureIdentity | abi.FeatureWindowAddresses |
	abi.FeatureChosenAddresses | abi.FeatureTriggeredEvents | abi.FeatureTextures

// FeaturesOf returns the features of an executor on a kind of GPU: only NVIDIA's GPUs run machine
// code.
func FeaturesOf(kind string) abi.Features {
	if kind == "nvidia" {
		return Features | abi.FeatureCubin | eventFeatures
	}
	return Features | eventFeatures
}

// eventFeatures are those of GPUs with event kernels. Their commands find out whether this is one.
const eventFeatures = abi.FeatureEventKernels | abi.FeatureEventDoorbells

// Options are an executor's options. All fields but Log, Fault, LastFault, KernelTimeLimit,
// Elapsed, FetchLimit, MemoryLimit, Grow, Granted, Rescued, Moves,
// Until and those of windows' addresses and of events must be set.
type Options struct {
	Device  gpu.Device
	Context gpu.Context
	// MemoryPeak returns the most memory that the context has taken at a time, in bytes. It may be nil.
	MemoryPeak func() uint64
	// Shared is all of BAR2, and Windows the offset of the windows that commands may name.
	Shared  []byte
	Windows int
	// Mappable is the part of Shared that kernels may reach, SharedFile the file that it is mapped
	// from, and Registered waits until the GPU's driver has locked its pages. Without a file no
	// window has an address.
	Mappable   []byte
	SharedFile *os.File
	Registered func()
	// EventFile is the event area, BAR4, and Events all of it. Without it there are no event kernels.
	EventFile *os.File
	Events    []byte
	Page      *ipc.ControlPage
	Slot      int
	Clock     clock.Clock
	Log       *slog.Logger
	// Fault is called once, when a kernel has poisoned the context, and ChannelFailed when a guest
	// has broken the rules of a channel's rings. Both are called after the completions that were
	// due are published.
	Fault         func(ipc.Fault)
	ChannelFailed func(ipc.ChannelFailure)
	// LastFault is the text, for the guest, of the fault that ended this context's predecessor.
	LastFault string
	// KernelTimeLimit is how much GPU time a launch may use in all its runs; 0 is no limit. Within
	// one run the GPU enforces it.
	KernelTimeLimit time.Duration
	// Elapsed, if set, is a clock that advances by at least the context's GPU time, for GPUs whose
	// timestamps include other contexts' time; see [gpu.ContextOptions].
	Elapsed func() time.Duration
	// FetchLimit is ShallowFetchLimit unless set.
	FetchLimit FetchLimit
	// MemoryLimit is the guest's limit in bytes until a daemon has set one on the page; 0 is none.
	MemoryLimit uint64
	// Grow, if set, asks for memory in bytes in all that the context may take; [Executor.Granted] answers.
	// Granted is called with what it may take from then on.
	Grow, Granted func(bytes uint64)
	// Rescued, if set, is called with a context that was saved when its GPU was lost. The file is the
	// executor's to close.
	Rescued func(f *os.File, s ipc.Saved) error
	// Moves reports whether the context may be saved: see [Executor.Save].
	Moves bool
	// Until ends what Save and Restore do; nil is context.Background.
	Until context.Context
}

// Executor carries out one context's commands. Step and Run belong to one goroutine; Open, Shut and
// SetVector may be called from any.
type Executor struct {
	o    Options
	slot *ipc.ContextSlot
	work ipc.WorkLog

	// requests are called by the goroutine of Step. mu guards them.
	mu       sync.Mutex
	requests []func()
	vectors  map[int]Interrupt

	channels  []*channel
	draining  []*channel // closed by the guest, with commands on the GPU
	modules   handles[*module]
	functions handles[*function]
	events    handles[*event]
	textures  textures
	memory    allocations
	places    places
	limitsSet map[uint32]uint64 // limits of the context that the guest has set
	printed   []byte            // what kernels printed before the context moved
	// peakBefore is the most memory that the context had before it moved, in bytes.
	peakBefore uint64
	props      gpu.Properties
	told       *[gpu.AttributeCount]int32 // see attributes

	shift   time.Duration                       // what the guest is told of the GPU's clock, less that clock: see Restore
	leaving *departure                          // nil: the context stays
	gone    bool                                // it was saved
	record  record                              // of what was written to its memory
	epoch   struct{ guest, host time.Duration } // the same instant of the GPU's clock and the executor's

	timeLimit    time.Duration // of the context's kernels, as the device knows it
	priority     *priority     // of the process's threads; nil: not managed
	suspension   suspension    // the guest's newest
	offGPU       offTimes      // on the GPU's clock
	offHost      offTimes      // the same on the executor's clock
	counted      countedTimes  // of launches
	launches     int           // and fills on the GPU, of all channels
	admitted     int           // launches that have room on the GPU: see admission
	working      bool          // see publishWorking
	severalBusy  bool          // several channels had work at the last step's end
	admittedWork time.Duration // how long those are expected to take
	admission    admission
	fills        int           // on the GPU
	brief        int           // short fills on the GPU
	filling      time.Duration // how long the short fills are expected to take
	zeroes       zeroes
	// refusedLoad is the newest module for which there was no memory.
	refusedLoad refusal
	growth      growth

	words, bulk   service       // the executor's own channels, once they are needed
	controlBlocks controlBlocks // of preemptible launches
	// badControlTold reports whether the log has that one was overwritten.
	badControlTold bool
	windows        windows // their addresses
	eventKernels   eventKernels
	preempted      *job // the job that has the context off the GPU, in mid-kernel
	// selfEnabled reports whether the context, which the page says is disabled, was enabled all the
	// same: see selfEnabler.
	selfEnabled atomic.Bool

	// Of the launch that is being decoded.
	params []byte
	gl     gpu.Launch

	// yield gives the processor to another thread that waits for it.
	yield func()

	poison    error      // what poisoned the context
	status    abi.Status // as in completions
	lastFault string
	reports   []func() // to be called at the end of the step
}

// Interrupt raises an interrupt vector: an eventfd.
type Interrupt interface {
	Raise() error
	Close() error
}

// New returns an executor without channels.
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
	if o.Until == nil {
		o.Until = context.Background()
	}
	x := &Executor{
		o:             o,
		work:          work,
		slot:          o.Page.Context(o.Slot),
		vectors:       make(map[int]Interrupt),
		controlBlocks: newBlocks(o.Context),
		modules:       newHandles[*module](maxModules),
		functions:     newHandles[*function](maxFunctions),
		events:        newHandles[*event](maxEvents),
		textures:      newTextures(),
		props:         o.Device.Properties(),
		lastFault:     o.LastFault,
		admission:     admission{admitter: o.Page.Admitter(o.Slot)},
		yield:         sched.Yield,
		timeLimit:     o.KernelTimeLimit,
		limitsSet:     make(map[uint32]uint64),
	}
	if o.Moves {
		x.places = newPlaces(o.Context)
		x.epoch.host = o.Clock.Now()
		now, err := o.Device.Now()
		x.epoch.guest = now
		x.record.over = err != nil
	} else {
		x.record.end()
	}
	return x
}

// do has f called by the goroutine of Step, and wakes it.
func (x *Executor) do(f func()) {
	x.mu.Lock()
	x.requests = append(x.requests, f)
	x.mu.Unlock()
	x.slot.Wake()
}

// takeRequests calls the requests, and reports whether there were any.
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

// Open begins to serve a channel. The goroutine of Step calls done with the error.
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

// Shut stops serving a channel. Its commands on the GPU end there; nothing more is written to its
// rings. The goroutine of Step calls done with the error.
func (x *Executor) Shut(index int, done func(error)) {
	x.do(func() { done(x.shut(index)) })
}

func (x *Executor) shut(index int) error {
	ch := x.find(index)
	if ch == nil {
		return fmt.Errorf("close channel %d: not open", index)
	}
	x.channels = slices.DeleteFunc(x.channels, func(other *channel) bool { return other == ch })
	x.o.Log.Debug("channel closed", "channel", index)
	ch.shut()
	x.draining = append(x.draining, ch)
	return nil
}

// drain closes channels that were shut once they have nothing on the GPU.
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
	if i := slices.IndexFunc(x.channels, func(ch *channel) bool { return ch.index == index }); i >= 0 {
		return x.channels[i]
	}
	return nil
}

// SetVector replaces an interrupt vector, and closes the one before; nil turns the vector off.
func (x *Executor) SetVector(index int, v Interrupt) {
	x.do(func() {
		if old := x.vectors[index]; old != nil {
			if err := old.Close(); err != nil {
				x.o.Log.Warn("close an interrupt vector", "vector", index, "err", err)
			}
		}
		x.vectors[index] = v
		if v != nil {
			// A completion may have come while the vector was off.
			x.raise(index)
		}
	})
}

// raise interrupts the guest. If that fails the guest misses a wake-up, which is logged.
func (x *Executor) raise(vector int) {
	v := x.vectors[vector]
	if v == nil {
		return
	}
	if err := v.Raise(); err != nil {
		x.o.Log.Warn("raise an interrupt", "vector", vector, "err", err)
	}
}

// Step carries out what can be carried out now: it retires what the GPU has finished and, unless
// suspended, fetches and starts commands. It reports whether it did anything.
func (x *Executor) Step(suspended bool) bool {
	did := x.takeRequests()
	if x.gone {
		return false
	}
	x.updateTimeLimit()
	x.setSuspended(suspended)
	x.updateOffTimes()
	if x.overstays() {
		x.endContext()
	}
	x.drain()
	did = x.zeroes.retire(x) || did
	backlog, working, busy := false, false, 0
	for _, ch := range x.channels {
		retired := ch.retire()
		if retired {
			// To put the next command on the GPU may take as long as it runs there.
			ch.publish()
		}
		fetches := !suspended && x.leaving == nil
		advanced := fetches && ch.advance()
		did = did || retired || advanced
		ch.publish()
		ch.accountInTime(retired, fetches && !advanced)
		b, w := ch.backlog(), ch.working()
		backlog, working = backlog || b, working || w
		if b || w {
			busy++
		}
	}
	x.severalBusy = busy > 1
	backlog = x.stepEventTurn(suspended) || backlog
	if !suspended {
		x.admission.settle(x)
	}
	x.slot.SetBacklog(backlog)
	x.publishWorking(working || x.eventKernels.on)
	for _, f := range x.reports {
		f()
	}
	x.reports = x.reports[:0]
	return x.leaveWhenQuiet() || did
}

// setSuspended records the start and end of suspensions on the GPU's clock.
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

// fail poisons the context. err is a kernel's fault or the loss of the GPU.
func (x *Executor) fail(err error) {
	if x.poison != nil {
		return
	}
	// Of several channels' launches one that was dropped may be retired before the one that
	// faulted.
	if cause := x.o.Context.Fault(); cause != nil && errors.Is(err, gpu.ErrPoisoned) {
		err = cause
	}
	x.poison, x.status = err, statusOf(err)
	if !x.status.Poisons() {
		x.status = abi.StatusLaunchFailed
	}
	text := guestText(err)
	x.lastFault = text[:min(len(text), maxFault)]
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

// report has f called at the end of the step, when the guest can see earlier completions.
func (x *Executor) report(f func()) { x.reports = append(x.reports, f) }

// Close closes all channels and vectors. The context and the page are the caller's.
func (x *Executor) Close() error {
	var errs []error
	for _, ch := range append(x.channels, x.draining...) {
		errs = append(errs, ch.close())
	}
	x.channels, x.draining = nil, nil
	x.closeEvents()
	x.zeroes.close()
	x.windows.mapping.Wait()
	errs = append(errs, x.words.close(), x.bulk.close())
	for _, v := range x.vectors {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	clear(x.vectors)
	return errors.Join(errs...)
}
