package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/gpu"
	"vgpud/internal/futex"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

const (
	// defaultEventEntries is how many entries an event kernel's queue has if the guest does not say.
	defaultEventEntries = 64
	// eventWatch is how often a context's event kernels are looked at for what tells nobody: faults, and
	// that they have parked. Once they have, each look finds the next one twice as far off, up to
	// parkedWatch: whoever rings kicks.
	eventWatch  = 20 * time.Millisecond
	parkedWatch = time.Second
	// endingWatch is the same while a kernel is being unregistered.
	endingWatch = time.Millisecond
)

// eventKernels are a context's registered kernels. Launching one is not the executor's business: the
// GPU does that by itself. The executor registers, holds them while the guest is suspended, passes
// kicks on where nobody polls, and notices faults.
type eventKernels struct {
	gpu        gpu.EventKernels // nil before the first registration
	at         gpu.Ptr          // where the area is for kernels
	registered map[int]*eventKernel
	turn       eventTurn
	ending     atomic.Int32 // kernels that are being unregistered
	eventPresence
	told  eventPresence // the watching goroutine's
	stop  context.CancelFunc
	watch sync.WaitGroup
}

// eventPresence is the time that event kernels have been on the GPU, if they are.
type eventPresence struct {
	on    bool          // some are, or are about to be
	since time.Duration // since when on the GPU's clock, as far as it was not told; 0: nothing is there
}

// eventKernel is a registered kernel.
type eventKernel struct {
	module uint64
	name   string // the kernel's
	ending bool
	next   time.Duration // when to ask again whether it is gone
}

// registerEventKernel carries out EVENT_KERNEL_REGISTER (EDGE §III.E). If it fails, nothing is kept.
func registerEventKernel(c *command, p *pending) error {
	x := c.ch.x
	ek, ok := x.o.Context.(gpu.EventKernels)
	if !ok || x.o.EventFile == nil {
		return fmt.Errorf("register an event kernel: %w", abi.StatusNotSupported)
	}
	k, f, priority, err := c.eventKernel()
	if err != nil {
		return err
	}
	if err := x.mapEvents(ek); err != nil {
		return err
	}
	n, ok := x.o.Page.TakeEventNumber(x.o.Slot)
	if !ok {
		return fmt.Errorf("register an event kernel beside %d: %w", abi.MaxEventKernels, abi.StatusTooMany)
	}
	k.Number = n
	x.eventKernels.turn.setPriority(n, priority)
	if err := ek.RegisterEventKernel(k); err != nil {
		x.o.Page.GiveEventNumber(x.o.Slot, n)
		if errors.Is(err, gpu.ErrFull) {
			return fmt.Errorf("%w: %w", err, abi.StatusTooMany)
		}
		return err
	}
	x.eventKernels.registered[n] = &eventKernel{module: f.module, name: f.attrs.Name}
	p.com.Value = [3]uint64{uint64(n), uint64(x.eventKernels.at), uint64(k.Entries)}
	return nil
}

// eventKernel decodes and checks what is to be registered, all but its number, and returns the
// priority that it asks for.
func (c *command) eventKernel() (k *gpu.EventKernel, f *function, priority int, err error) {
	x := c.ch.x
	l, err := abi.DecodeLaunch(c.entry)
	if err != nil {
		return nil, nil, 0, err
	}
	f, err = x.functions.get(l.Function)
	if err != nil {
		return nil, nil, 0, err
	}
	k = &gpu.EventKernel{Handle: l.Function, Launch: launchShape(&l), Entries: defaultEventEntries}
	if err := x.checkShape(k.Grid, k.Block); err != nil {
		return nil, nil, 0, err
	}
	records := uint64(c.h.Aux) * abi.EntrySize
	data, err := c.data(l.Data, records+uint64(l.ParamBytes), maxParams)
	if err != nil {
		return nil, nil, 0, err
	}
	k.Function, k.Params = f.gpu, data[records:]
	var asked attributes
	for i := range uint64(c.h.Aux) {
		e := (*abi.Entry)(data[i*abi.EntrySize:])
		if a, err := abi.DecodeAttribute(e); err == nil && a.ID == abi.AttributeEventEntries {
			k.Entries = int(a.Uint32(0))
			continue
		}
		if err := x.attribute(e, f, &k.Launch, &asked); err != nil {
			return nil, nil, 0, err
		}
	}
	switch {
	case asked.preempt.Form != 0 || asked.cooperative:
		return nil, nil, 0, fmt.Errorf("an event kernel that is cooperative, or preemptible: %w", abi.StatusNotSupported)
	case uint64(l.ParamBytes) != f.attrs.ParamBytes:
		return nil, nil, 0, fmt.Errorf("%d bytes of parameters, the kernel has %d: %w", l.ParamBytes, f.attrs.ParamBytes, abi.StatusInvalidValue)
	case k.Entries < 1 || k.Entries > abi.MaxEventEntries || abi.EventQueueSize(len(k.Params), k.Entries) > abi.EventQueueBytes:
		return nil, nil, 0, fmt.Errorf("an event kernel's queue of %d entries with %d bytes of parameters: %w", k.Entries, len(k.Params), abi.StatusInvalidValue)
	}
	if _, ignored := x.launchUrgency(asked.prioritised, asked.priority); ignored {
		x.slot.AddIgnoredPriority()
	}
	priority = ownPriority
	if asked.prioritised {
		priority = int(max(-int64(asked.priority), 0))
	}
	x.record.end()
	return k, f, priority, nil
}

// mapEvents gives the context the event area, once, and begins to watch it.
func (x *Executor) mapEvents(ek gpu.EventKernels) error {
	e := &x.eventKernels
	if e.gpu != nil {
		return nil
	}
	at, err := ek.MapEvents(x.o.EventFile)
	if err != nil {
		return err
	}
	if err := x.beginEventTurn(ek); err != nil {
		return err
	}
	e.at = at
	e.gpu, e.registered = ek, make(map[int]*eventKernel)
	ctx, cancel := context.WithCancel(x.o.Until)
	e.stop = cancel
	e.watch.Go(func() { x.watchEvents(ctx, ek) })
	return nil
}

// watchEvents passes kicks on, notices faults, and has Step look again at kernels that end.
func (x *Executor) watchEvents(ctx context.Context, ek gpu.EventKernels) {
	kicks := abi.AtomicWord(x.o.Events, abi.EventKicksWord)
	wait := newRingWait(x, ek)
	looked, watch := x.o.Clock.Now(), eventWatch
	for ctx.Err() == nil {
		seen := kicks.Load()
		if x.eventsRung() {
			wait.ended()
			watch = eventWatch
			x.kickedEvents()
			x.do(func() { x.eventKernels.on = true })
			x.eventKernels.told.on = true
		}
		state, soon := x.watchEventTurn()
		if state == eventsParked && wait.poll(ctx, seen) {
			continue
		}
		limit := watch
		if soon {
			limit = eventLooks
		}
		if x.eventKernels.ending.Load() > 0 {
			limit = min(limit, endingWatch)
			x.slot.Wake()
		}
		_ = futex.Wait(kicks, seen, limit) // it ends early for any reason
		now := x.o.Clock.Now()
		if now-looked < eventWatch {
			continue
		}
		looked = now
		list, err := ek.EventKernelCounts()
		if err != nil {
			continue // the GPU is lost, which others notice
		}
		there := slices.ContainsFunc(list, func(k gpu.EventKernelCounts) bool { return k.Resident || k.Started != k.Ended })
		if watch = min(2*watch, parkedWatch); there {
			watch = eventWatch
		}
		x.showEvents(list)
		x.accountEvents(ek, there)
		if err := x.o.Context.Fault(); err != nil {
			x.do(func() { x.fail(err) })
			return
		}
	}
}

// wakeEventWatch has watchEvents look at once.
func (x *Executor) wakeEventWatch() {
	kicks := abi.AtomicWord(x.o.Events, abi.EventKicksWord)
	kicks.Add(1)
	futex.Wake(kicks)
}

// showEvents tells the daemon of the context's event kernels.
func (x *Executor) showEvents(list []gpu.EventKernelCounts) {
	for _, k := range list {
		if x.slot.EventNumbers()&(1<<k.Number) != 0 {
			x.o.Page.SetEventKernel(ipc.EventKernel{
				Number: k.Number, Context: x.o.Slot, Name: k.Kernel, Tier: k.Tier, Why: k.Why, Resident: k.Resident,
				Ended: k.Ended, Dropped: k.Dropped, Stray: k.Stray, P50: k.P50, P99: k.P99,
			})
		}
	}
}

// accountEvents records whether event kernels are on the GPU, and since when they were where the GPU
// says so.
func (x *Executor) accountEvents(ek gpu.EventKernels, on bool) {
	var spans [][2]time.Duration
	var since time.Duration
	if t, ok := ek.(gpu.EventTimes); ok {
		var err error
		if since, err = t.EventTimes(func(start, end time.Duration) { spans = append(spans, [2]time.Duration{start, end}) }); err != nil {
			return // the GPU is lost, which others notice
		}
	}
	told := eventPresence{on, since}
	if len(spans) == 0 && told == x.eventKernels.told {
		return
	}
	x.eventKernels.told = told
	x.do(func() {
		x.eventKernels.on, x.eventKernels.since = on, since
		if x.work.Wanted() {
			for _, s := range spans {
				x.work.Add(s[0], s[1])
			}
			x.publishSince()
		}
	})
}

// eventsRung reports whether one of the context's kernels has rings that were not taken, by the
// words that the guest sees and can overwrite.
func (x *Executor) eventsRung() bool {
	mask := x.slot.EventNumbers()
	for n := range abi.MaxEventKernels {
		page := abi.EventPage(n)
		if mask&(1<<n) != 0 && abi.LoadWord(x.o.Events, page+abi.EventDoorbellWord) != abi.LoadWord(x.o.Events, page+abi.EventSeenWord) {
			return true
		}
	}
	return false
}

func unregisterEventKernel(c *command, _ *pending) error {
	x := c.ch.x
	n, k, err := c.registered()
	if err != nil {
		return err
	}
	now := x.o.Clock.Now()
	if k.ending && now < k.next {
		return errWaits
	}
	gone, err := x.eventKernels.gpu.UnregisterEventKernel(n)
	if errors.Is(err, gpu.ErrNotFound) && k.ending {
		gone, err = true, nil // since it was asked last
	}
	if err != nil {
		return err
	}
	if !gone {
		if !k.ending {
			k.ending = true
			x.eventKernels.ending.Add(1)
		}
		k.next = now + endingWatch
		return errWaits
	}
	if k.ending {
		x.eventKernels.ending.Add(-1)
	}
	delete(x.eventKernels.registered, n)
	x.o.Page.GiveEventNumber(x.o.Slot, n)
	return nil
}

// registered returns the event kernel that the command names.
func (c *command) registered() (int, *eventKernel, error) {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return 0, nil, err
	}
	x := c.ch.x
	if _, ok := x.o.Context.(gpu.EventKernels); !ok || x.o.EventFile == nil {
		return 0, nil, fmt.Errorf("event kernel %d: %w", h.Handle, abi.StatusNotSupported)
	}
	if h.Handle >= abi.MaxEventKernels || x.eventKernels.registered[int(h.Handle)] == nil {
		return 0, nil, fmt.Errorf("event kernel %d: %w", h.Handle, abi.StatusInvalidHandle)
	}
	return int(h.Handle), x.eventKernels.registered[int(h.Handle)], nil
}

func queryEventKernel(c *command, p *pending) error {
	n, _, err := c.registered()
	if err != nil {
		return err
	}
	list, err := c.ch.x.eventKernels.gpu.EventKernelCounts()
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Number == n {
			p.com.Value = [3]uint64{k.Ended, k.Dropped, k.Stray}
		}
	}
	return nil
}

// registersModule reports whether a kernel of the module is registered.
func (x *Executor) registersModule(module uint64) bool {
	for _, k := range x.eventKernels.registered {
		if k.module == module {
			return true
		}
	}
	return false
}

// closeEvents stops watching. The GPU's context ends the registrations.
func (x *Executor) closeEvents() {
	if e := &x.eventKernels; e.stop != nil {
		e.stop()
		x.wakeEventWatch()
		e.watch.Wait()
		e.turn.end(x.o.Clock.Now())
	}
}
