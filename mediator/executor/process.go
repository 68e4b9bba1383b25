package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/vgpu/abi"
)

// Opener opens the GPU that a setup names.
type Opener func(ctx context.Context, g ipc.GPU) (gpu.Device, error)

// Serve runs the process of one guest context. It receives its setup over conn, creates the
// context, and carries out commands until the other end of conn closes or ctx ends. It takes conn
// over. If the context can't be created Serve reports the reason to the other end, and returns no
// error.
//
// A guest can start and end executors, and have their contexts and channels fail, as often as it
// likes. So the process logs that at level Debug only. vm is told of all of it, and limits the log
// of all of the guest's processes.
func Serve(ctx context.Context, conn *ipc.Conn, open Opener, log *slog.Logger) error {
	return process{clock.Real{}, watchdog{clock.Real{}, os.Exit}}.serve(ctx, conn, open, log)
}

// process is the environment of Serve.
type process struct {
	clock    clock.Clock
	watchdog watchdog
}

// serving is one call of Serve. Its stages call one another: serve receives the setup, withPage maps the
// control page, withContext creates the context on the GPU, execute creates the executor, and run runs
// it. Each stage releases what it made when the next one returns.
type serving struct {
	process
	conn   *ipc.Conn
	hangUp func() error // closes conn, once
	open   Opener
	opened *opened // nil: the process was not a spare one
	log    *slog.Logger
	began  time.Duration

	setup ipc.Setup
	files setupFiles

	// Of withPage.
	page   *ipc.ControlPage
	slot   *ipc.ContextSlot
	memory *ipc.Memory
	events []byte // the event area; nil: the guest has none

	// Of withContext.
	made     *ahead
	wasAhead bool // it was made before it was asked for
	fault    func(ipc.Fault)
	end      context.CancelCauseFunc // has the executor end
}

func (p process) serve(ctx context.Context, conn *ipc.Conn, open Opener, log *slog.Logger) (err error) {
	v := &serving{process: p, conn: conn, hangUp: sync.OnceValue(conn.Close), open: open, log: log}
	defer func() { err = errors.Join(err, v.hangUp()) }()
	m, opened, err := p.receiveSetup(ctx, conn, open, log)
	if err != nil || m.Kind == "" {
		return err
	}
	v.opened = opened
	defer func() { err = errors.Join(err, opened.close()) }()
	if v.setup, v.files, err = parseSetup(&m); err != nil {
		return errors.Join(err, m.CloseFiles())
	}
	defer func() { err = errors.Join(err, v.files.close()) }()
	v.began = p.clock.Now()
	v.log = log.With("guest", v.setup.Guest, "context", v.setup.Slot)
	return v.withPage(ctx)
}

// withPage maps what the guest, vm and the daemon share with the process, and claims the context's part
// of the control page.
func (v *serving) withPage(ctx context.Context) (err error) {
	if v.events, err = mapEvents(v.files.events); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmapEvents(v.events)) }()
	if v.page, err = v.files.openPage(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.page.Close()) }()

	s := &v.setup
	v.slot = v.page.Context(s.Slot)
	v.slot.Reset(os.Getpid())
	v.page.FreeLaunchSlots(s.Slot)
	defer func() {
		v.page.FreeLaunchSlots(s.Slot)
		v.page.FreeEventNumbers(s.Slot)
		v.slot.Free()
		v.page.AddChange()
	}()
	v.memory = v.page.Memory(s.Slot, s.MemoryLimit).Granted(s.Grant)
	v.memory.SetExempt(s.Saved)
	return v.withContext(ctx)
}

// withContext creates the context, if it was not made ahead, and guards the end of the process from then
// on. If it can't be created vm is told.
func (v *serving) withContext(ctx context.Context) (err error) {
	v.made = v.opened.takeAhead(&v.setup, v.page, v.files.bar2, v.memory, v.log)
	v.wasAhead = v.made != nil
	if !v.wasAhead {
		if v.opened.isSealed() {
			return errSealed
		}
		if v.made, err = v.makeNow(ctx); v.made == nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, v.made.release()) }()
	defer v.made.stopPopulated()
	if err != nil {
		// vm is told, and limits its log.
		v.log.Debug("executor has no context", "err", err)
		return notReady(v.conn, err)
	}
	ctx, v.end = context.WithCancelCause(ctx)
	v.fault = faultReport(v.conn, v.log)
	defer v.watchdog.guard(ctx.Done(), hungOf(v.made.context), func() {
		v.fault(ipc.Fault{Code: uint32(abi.ErrorTimeLimit), Text: guestText(gpu.ErrTimeLimit)})
	})()
	defer func() {
		v.end(nil) // if Run was not called; from here on the process is to end
		v.slot.SetEnding()
		err = errors.Join(err, v.made.registered.close(v.made.context), v.made.device.Close())
	}()
	if !v.wasAhead {
		v.made.raised = settle(&v.setup, v.page, v.log)
	}
	return v.execute(ctx)
}

// execute creates the executor, makes its context anew from what was saved, if that is asked for, and
// runs it.
func (v *serving) execute(ctx context.Context) (err error) {
	x := v.executor(ctx)
	defer func() { err = errors.Join(err, x.Close()) }()
	defer x.enableAtEnd()
	// It listens while the context is made anew, too: if vm dies, that ends.
	var listening sync.WaitGroup
	listening.Go(func() { v.end(x.listen(v.conn)) })
	defer func() { // it uses the page, which is unmapped next
		err = errors.Join(err, v.hangUp())
		listening.Wait()
	}()
	if v.files.saved != nil {
		if err := x.Restore(v.files.saved, v.setup.Closed); err != nil {
			v.log.Debug("a context can't be made anew", "err", err)
			return notReady(v.conn, err)
		}
	}
	if err := v.announce(); err != nil {
		return err
	}
	err = v.run(ctx, x)
	listening.Wait() // run has closed the connection, so ctx has its cause
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	v.log.Debug("executor ends")
	return nil
}

// executor returns the executor of the context.
func (v *serving) executor(ctx context.Context) *Executor {
	s, made, conn, log := &v.setup, v.made, v.conn, v.log
	x := New(Options{
		Device: made.device, Context: made.context, MemoryPeak: v.memory.Peak, Shared: made.shared, Windows: s.Header + s.Rings, Page: v.page, Slot: s.Slot,
		Clock: v.clock, Log: log, LastFault: s.LastFault, KernelTimeLimit: s.KernelTimeLimit,
		FetchLimit: fetchLimitOf(s.GPU, made.device), Elapsed: elapsedOf(s.GPU, made.options.Elapsed),
		Fault:         v.fault,
		ChannelFailed: func(f ipc.ChannelFailure) { report(conn, log, ipc.KindFailed, f) },
		Mappable:      made.windows, SharedFile: v.files.bar2, Registered: made.registered.wait, EventFile: v.files.events, Events: v.events,
		Moves: s.Grant > 0, MemoryLimit: s.MemoryLimit, Until: ctx, Granted: v.memory.SetGrant, Grow: growOf(conn, s, log), Rescued: rescuedOf(conn, s),
	})
	if made.raised {
		x.priority = &priority{page: v.page, slot: v.slot, log: log}
	}
	return x
}

// announce tells vm, and all who look at the control page, that the context is there.
func (v *serving) announce() error {
	c := v.made.context
	v.memory.SetExempt(false)
	v.slot.SetReady(uint16(c.Group()))
	v.page.AddChange()
	if err := v.conn.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		return err
	}
	if v.setup.Handles {
		if err := handOver(v.conn, c, v.setup.Slot); err != nil {
			v.log.Debug("context can't be handed to the daemon", "err", err)
		}
	}
	v.log.Debug("executor ready", "group", c.Group(), "gpu", v.setup.GPU.Name, "ahead", v.wasAhead, "after", v.clock.Now()-v.began)
	return nil
}

// run runs the executor until it is to end, beside goroutines that notice what its own may not get to. It
// closes the connection.
func (v *serving) run(ctx context.Context, x *Executor) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	// ctx may end while Run is still in a call of the driver.
	running, ran := context.WithCancel(context.WithoutCancel(ctx))
	defer ran()
	beside.Go(func() { x.enableSelf(running) })
	if hung := hungOf(v.made.context); hung != nil {
		beside.Go(func() { x.endWhenHung(running, hung, func() { v.end(nil) }) })
	}
	if l, ok := v.made.device.(gpu.Losable); ok {
		beside.Go(func() { x.failWhenLost(ctx, l) })
	}
	if p, ok := v.made.context.(gpu.Pinner); ok {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := p.Pin(); err != nil {
			v.log.Debug("commands are queued from any thread", "err", err)
		}
	}
	err := x.Run(ctx)
	if x.gone {
		<-ctx.Done() // vm closes the connection; otherwise it might not read the answer
	}
	// That ends ctx, which failWhenLost waits for.
	return errors.Join(err, v.hangUp())
}

// makeNow makes a context that is needed now. It returns nil if the guest's memory is not what it should
// be, and otherwise, with an error, one without a context and a GPU.
func (v *serving) makeNow(ctx context.Context) (*ahead, error) {
	s := &v.setup
	shared, err := mapShared(v.files.bar2)
	if err != nil {
		return nil, err
	}
	a := &ahead{shared: shared}
	var populated func()
	a.windows, populated, a.stopPopulated = windowsOf(s, shared, v.log)
	a.options = contextOptions(s, v.page, v.memory, newMeter(v.page, v.clock).elapsed)
	if a.device, err = v.opened.opener(v.open)(ctx, s.GPU); err != nil {
		return a, fmt.Errorf("open GPU %s: %w", s.GPU.Name, err)
	}
	if a.context, err = a.device.NewContext(ctx, a.options); err != nil {
		return a, errors.Join(fmt.Errorf("create a context on GPU %s: %w", s.GPU.Name, err), a.device.Close())
	}
	a.registered = register(a.context, a.windows, populated, v.log)
	return a, nil
}

// settle has this process be what it is from when it has a context on: its priority, its processors and
// its confinement. It reports whether it could raise its priority.
func settle(s *ipc.Setup, page *ipc.ControlPage, log *slog.Logger) (raised bool) {
	err := raisePriority()
	if err != nil {
		log.Debug("executor runs at the usual priority", "err", err)
	}
	if cpu, ok := page.PollingCPU(); ok {
		if err := avoidCPU(cpu); err != nil {
			log.Debug("executor may share the polling thread's processor", "err", err)
		}
	}
	if s.Sealed {
		if err := seal(s.GPU.Kind); err != nil {
			log.Warn("executor is less confined", "err", err)
		}
	}
	return err == nil
}

// seal confines this process to what it needs from now on, which is less than it needed to open the
// GPU.
func seal(kind string) error {
	return errors.Join(sandbox.Limit(), sandbox.Seal(sandbox.FilterOf(kind)))
}

// failWhenLost ends the context when the GPU is gone, even if it is idle: the guest should learn of
// it before it submits more.
func (x *Executor) failWhenLost(ctx context.Context, l gpu.Losable) {
	select {
	case <-ctx.Done():
	case <-l.Lost():
		x.do(func() {
			if !x.rescue() {
				x.fail(gpu.ErrLost)
			}
		})
	}
}

// endWhenHung ends the process, by end, when a kernel hangs that nothing else stops. The guest is
// told first. If Run does not get to that, a [watchdog] does.
func (x *Executor) endWhenHung(ctx context.Context, hung <-chan struct{}, end func()) {
	select {
	case <-ctx.Done():
	case <-hung:
		x.do(func() {
			x.fail(x.timeLimitFault())
			x.report(end)
		})
	}
}
