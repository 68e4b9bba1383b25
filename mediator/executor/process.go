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

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/memfd"
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

func (p process) serve(ctx context.Context, conn *ipc.Conn, open Opener, log *slog.Logger) (err error) {
	hangUp := sync.OnceValue(conn.Close)
	defer func() { err = errors.Join(err, hangUp()) }()
	m, opened, err := p.receiveSetup(ctx, conn, open, log)
	if err != nil || m.Kind == "" {
		return err
	}
	defer func() { err = errors.Join(err, opened.close()) }()
	var s ipc.Setup
	if err := checkSetup(&m, &s); err != nil {
		return errors.Join(err, m.CloseFiles())
	}
	began := p.clock.Now()
	log = log.With("guest", s.Guest, "context", s.Slot)

	var suspension, saved, events *os.File
	if s.Events {
		events = m.Files[len(m.Files)-1]
		m.Files = m.Files[:len(m.Files)-1]
		defer func() { err = errors.Join(err, events.Close()) }()
	}
	for _, f := range m.Files[2:] {
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	if s.Saved {
		saved = m.Files[len(m.Files)-1]
	}
	if n := len(m.Files); n == 4 || n == 3 && !s.Saved {
		suspension = m.Files[2]
	}
	bar2 := m.Files[0]
	defer func() { err = errors.Join(err, bar2.Close()) }()
	area, err := mapEvents(events)
	if err != nil {
		return errors.Join(err, m.Files[1].Close())
	}
	defer func() { err = errors.Join(err, unmapEvents(area)) }()
	page, err := ipc.OpenControlPage(m.Files[1])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	page.SetSuspensionFile(suspension)

	slot := page.Context(s.Slot)
	slot.Reset(os.Getpid())
	page.FreeLaunchSlots(s.Slot)
	defer func() {
		page.FreeLaunchSlots(s.Slot)
		page.FreeEventNumbers(s.Slot)
		slot.Free()
		page.AddChange()
	}()

	memory := page.Memory(s.Slot, s.MemoryLimit).Granted(s.Grant)
	memory.SetExempt(s.Saved)
	made := opened.takeAhead(&s, page, bar2, memory, log)
	wasAhead := made != nil
	if !wasAhead && opened.isSealed() {
		return errSealed
	}
	if !wasAhead {
		if made, err = p.makeNow(ctx, &s, bar2, page, opened.opener(open), memory, log); made == nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, made.release()) }()
	defer made.stopPopulated()
	if err != nil {
		// vm is told, and limits its log.
		log.Debug("executor has no context", "err", err)
		return notReady(conn, err)
	}
	device, gctx, shared, windows, registered, elapsed := made.device, made.context, made.shared, made.windows, made.registered, made.options.Elapsed
	ctx, cancel := context.WithCancelCause(ctx)
	fault := faultReport(conn, log)
	defer p.watchdog.guard(ctx.Done(), hungOf(gctx), func() {
		fault(ipc.Fault{Code: uint32(abi.ErrorTimeLimit), Text: guestText(gpu.ErrTimeLimit)})
	})()
	defer func() {
		cancel(nil) // if Run was not called; from here on the process is to end
		slot.SetEnding()
		err = errors.Join(err, registered.close(gctx), device.Close())
	}()

	if !wasAhead {
		made.raised = settle(&s, page, log)
	}
	x := New(Options{
		Device: device, Context: gctx, MemoryPeak: memory.Peak, Shared: shared, Windows: s.Header + s.Rings, Page: page, Slot: s.Slot,
		Clock: p.clock, Log: log, LastFault: s.LastFault, KernelTimeLimit: s.KernelTimeLimit,
		FetchLimit: fetchLimitOf(s.GPU, device), Elapsed: elapsedOf(s.GPU, elapsed),
		Fault:         fault,
		ChannelFailed: func(f ipc.ChannelFailure) { report(conn, log, ipc.KindFailed, f) },
		Mappable:      windows, SharedFile: bar2, Registered: registered.wait, EventFile: events, Events: area,
		Moves: s.Grant > 0, MemoryLimit: s.MemoryLimit, Until: ctx, Granted: memory.SetGrant, Grow: growOf(conn, &s, log), Rescued: rescuedOf(conn, &s),
	})
	defer func() { err = errors.Join(err, x.Close()) }()
	defer x.enableAtEnd()
	if made.raised {
		x.priority = &priority{page: page, slot: slot, log: log}
	}
	// It listens while the context is made anew, too: if vm dies, that ends.
	var listening sync.WaitGroup
	listening.Go(func() { cancel(x.listen(conn)) })
	defer func() { // it uses the page, which is unmapped next
		err = errors.Join(err, hangUp())
		listening.Wait()
	}()
	if saved != nil {
		if err := x.Restore(saved, s.Closed); err != nil {
			log.Debug("a context can't be made anew", "err", err)
			return notReady(conn, err)
		}
	}

	memory.SetExempt(false)
	slot.SetReady(uint16(gctx.Group()))
	page.AddChange()
	if err := conn.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		return err
	}
	if s.Handles {
		if err := handOver(conn, gctx, s.Slot); err != nil {
			log.Debug("context can't be handed to the daemon", "err", err)
		}
	}
	log.Debug("executor ready", "group", gctx.Group(), "gpu", s.GPU.Name, "ahead", wasAhead, "after", p.clock.Now()-began)

	// ctx may end while Run is still in a call of the driver.
	running, ran := context.WithCancel(context.WithoutCancel(ctx))
	defer ran()
	listening.Go(func() { x.enableSelf(running) })
	if hung := hungOf(gctx); hung != nil {
		listening.Go(func() { x.endWhenHung(running, hung, func() { cancel(nil) }) })
	}
	if l, ok := device.(gpu.Losable); ok {
		listening.Go(func() { x.failWhenLost(ctx, l) })
	}
	if p, ok := gctx.(gpu.Pinner); ok {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := p.Pin(); err != nil {
			log.Debug("commands are queued from any thread", "err", err)
		}
	}
	err = x.Run(ctx)
	if x.gone {
		<-ctx.Done() // vm closes the connection; otherwise it might not read the answer
	}
	// The listening goroutines use the page, which is unmapped next.
	ran()
	err = errors.Join(err, hangUp())
	listening.Wait()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	log.Debug("executor ends")
	return nil
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

func checkSetup(m *ipc.Message, s *ipc.Setup) error {
	n := len(m.Files)
	if m.Kind != ipc.KindSetup || n < 2 || n > 5 {
		return fmt.Errorf("first message is %q with %d files, want %q with 2 to 5", m.Kind, n, ipc.KindSetup)
	}
	if err := m.Decode(s); err != nil {
		return err
	}
	if s.Events {
		n--
	}
	if n < 2 || n > 4 {
		return fmt.Errorf("setup with %d files, event area: %v", len(m.Files), s.Events)
	}
	if s.Saved && n == 2 || !s.Saved && n == 4 {
		return fmt.Errorf("setup with %d files, saved: %v", n, s.Saved)
	}
	if s.Slot < 0 || s.Slot >= ipc.MaxContexts {
		return fmt.Errorf("context slot %d of %d", s.Slot, ipc.MaxContexts)
	}
	return checkRings(s)
}

// checkRings checks where a setup has the device's part of BAR2.
func checkRings(s *ipc.Setup) error {
	if s.Header < 0 || s.Rings < 0 {
		return fmt.Errorf("header of %d bytes, rings of %d", s.Header, s.Rings)
	}
	return nil
}

// mapShared maps BAR2 whole.
func mapShared(f *os.File) (mem []byte, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at BAR2: %w", err)
	}
	if err := memfd.Check(f, st.Size()); err != nil {
		return nil, fmt.Errorf("BAR2: %w", err)
	}
	mem, err = unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map BAR2's %d bytes: %w", st.Size(), err)
	}
	return mem, nil
}

// mapEvents maps the event area, if there is one.
func mapEvents(f *os.File) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
		return nil, fmt.Errorf("BAR4: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map BAR4's %d bytes: %w", abi.EventAreaBytes, err)
	}
	return mem, nil
}

func unmapEvents(mem []byte) error {
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// notReady tells vm that there will be no context, and of what kind the reason is.
func notReady(conn *ipc.Conn, reason error) error {
	code := abi.ErrorExecutorStart
	switch {
	case errors.Is(reason, gpu.ErrLost):
		code = abi.ErrorDeviceLost
	case errors.Is(reason, gpu.ErrOutOfMemory):
		code = abi.ErrorLimit
	}
	m, err := ipc.NewMessage(ipc.KindReady, ipc.Fault{Code: uint32(code), Text: guestText(reason)})
	if err != nil {
		return err
	}
	m.Error = reason.Error()
	return conn.Send(m)
}

// makeNow makes a context that is needed now. It returns nil if the guest's memory is not what it should
// be, and otherwise, with an error, one without a context and a GPU.
func (p process) makeNow(ctx context.Context, s *ipc.Setup, bar2 *os.File, page *ipc.ControlPage, open Opener, memory gpu.Budget, log *slog.Logger) (*ahead, error) {
	shared, err := mapShared(bar2)
	if err != nil {
		return nil, err
	}
	a := &ahead{shared: shared}
	var populated func()
	a.windows, populated, a.stopPopulated = windowsOf(s, shared, log)
	a.options = contextOptions(s, page, memory, newMeter(page, p.clock).elapsed)
	if a.device, err = open(ctx, s.GPU); err != nil {
		return a, fmt.Errorf("open GPU %s: %w", s.GPU.Name, err)
	}
	if a.context, err = a.device.NewContext(ctx, a.options); err != nil {
		return a, errors.Join(fmt.Errorf("create a context on GPU %s: %w", s.GPU.Name, err), a.device.Close())
	}
	a.registered = register(a.context, a.windows, populated, log)
	return a, nil
}

// windowsOf returns the part of BAR2 that is registered with the GPU. If the GPU registers memory, its
// pages are made meanwhile; populated waits for them, and stop ends that.
func windowsOf(s *ipc.Setup, shared []byte, log *slog.Logger) (windows []byte, populated, stop func()) {
	windows = registrable(s, shared, log)
	if s.GPU.Kind != "nvidia" {
		return windows, func() {}, func() {}
	}
	populated, stop = populate(windows, log)
	return windows, populated, stop
}

// contextOptions returns what the context of a setup is made with.
func contextOptions(s *ipc.Setup, page *ipc.ControlPage, memory gpu.Budget, elapsed func() time.Duration) gpu.ContextOptions {
	limit := currentMemoryLimit(page, s.MemoryLimit)
	switch {
	case s.Grant > 0 && !s.Grows:
		limit = s.Grant
	case s.Saved && limit > 0: // it may have been lowered since
		limit = max(limit, s.Grant)
	}
	return gpu.ContextOptions{
		Label: s.Guest, MemoryLimit: limit, Budget: memory, KernelTimeLimit: currentTimeLimit(page, s.KernelTimeLimit), Elapsed: elapsed,
	}
}

// currentMemoryLimit returns the GPU memory that the guest may use: what the daemon has set since, or
// what the context was set up with. 0 is no limit.
func currentMemoryLimit(page *ipc.ControlPage, setup uint64) uint64 {
	if n, ok := page.MemoryLimit(); ok {
		return n
	}
	return setup
}

// handOver sends vm, and so the daemon, the context's handles, if it has any.
func handOver(conn *ipc.Conn, c gpu.Context, slot int) (err error) {
	handled, ok := c.(gpu.Handled)
	if !ok {
		return nil
	}
	h, err := handled.Handles()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range h.Files {
			err = errors.Join(err, f.Close())
		}
	}()
	m, err := ipc.NewMessage(ipc.KindHandles, ipc.Handles{Slot: slot, Names: h.Names}, h.Files...)
	if err != nil {
		return err
	}
	return conn.Send(m)
}

// report tells vm that the context or a channel has ended.
func report(conn *ipc.Conn, log *slog.Logger, kind ipc.Kind, body any) {
	m, err := ipc.NewMessage(kind, body)
	if err == nil {
		err = conn.Send(m)
	}
	if err != nil {
		log.Warn("report to vm", "kind", kind, "err", err)
	}
}

// faultReport returns a function that tells vm, once, what ended the context.
func faultReport(conn *ipc.Conn, log *slog.Logger) func(ipc.Fault) {
	var once sync.Once
	return func(f ipc.Fault) { once.Do(func() { report(conn, log, ipc.KindFault, f) }) }
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
			x.fail(gpu.ErrTimeLimit)
			x.report(end)
		})
	}
}

// fetchLimitOf returns the fetch limit on a GPU.
func fetchLimitOf(g ipc.GPU, d gpu.Device) FetchLimit {
	if g.Kind == "nvidia" && d.Properties().Preempts {
		return DeepFetchLimit
	}
	return ShallowFetchLimit
}

// growOf returns the function that asks vm for more memory, or nil if the context can't get more.
func growOf(conn *ipc.Conn, s *ipc.Setup, log *slog.Logger) func(bytes uint64) {
	if s.Grant == 0 || !s.Grows {
		return nil
	}
	return func(bytes uint64) { report(conn, log, ipc.KindGrow, ipc.Grow{Slot: s.Slot, Memory: bytes}) }
}

// rescuedOf returns the function that sends vm a context that outlives its GPU, or nil if vm does not
// take it.
func rescuedOf(conn *ipc.Conn, s *ipc.Setup) func(*os.File, ipc.Saved) error {
	if s.Grant == 0 || !s.Grows {
		return nil
	}
	return func(f *os.File, saved ipc.Saved) error {
		m, err := ipc.NewMessage(ipc.KindSave, saved, f)
		if err != nil {
			return err
		}
		return conn.Send(m)
	}
}

// elapsedOf returns elapsed, or nil if the GPU's own timestamps tell how long a kernel ran.
func elapsedOf(g ipc.GPU, elapsed func() time.Duration) func() time.Duration {
	if g.Kind == "nvidia" {
		return elapsed
	}
	return nil
}

// listen handles vm's messages until the connection ends.
func (x *Executor) listen(conn *ipc.Conn) error {
	for {
		m, err := conn.Receive()
		if err != nil {
			return err
		}
		if err := x.handle(conn, m); err != nil {
			return errors.Join(err, m.CloseFiles())
		}
	}
}

// handle handles one message. An error is one of the protocol.
func (x *Executor) handle(conn *ipc.Conn, m ipc.Message) error {
	answer := func(err error) {
		reply := ipc.Message{Kind: m.Kind, ID: m.ID}
		if err != nil {
			reply.Error = err.Error()
		}
		if err := conn.Send(reply); err != nil {
			x.o.Log.Warn("answer vm", "kind", m.Kind, "err", err)
		}
	}
	switch m.Kind {
	case ipc.KindOpen, ipc.KindShut:
		var c ipc.Channel
		if err := m.Decode(&c); err != nil {
			return err
		}
		if m.Kind == ipc.KindOpen {
			x.Open(c, answer)
		} else {
			x.Shut(c.Index, answer)
		}
		return nil
	case ipc.KindGrant:
		var g ipc.Grant
		if err := m.Decode(&g); err != nil {
			return err
		}
		x.Granted(g)
		return nil
	case ipc.KindSave:
		if len(m.Files) != 1 {
			return fmt.Errorf("%s with %d files, want 1", m.Kind, len(m.Files))
		}
		x.Save(m.Files[0], func(s ipc.Saved, err error) {
			err = errors.Join(err, m.CloseFiles())
			reply, merr := ipc.NewMessage(m.Kind, s)
			if err = errors.Join(err, merr); err != nil {
				answer(err)
				return
			}
			reply.ID = m.ID
			if err := conn.Send(reply); err != nil {
				x.o.Log.Warn("answer vm", "kind", m.Kind, "err", err)
			}
		})
		return nil
	case ipc.KindVector:
		var v ipc.Vector
		if err := m.Decode(&v); err != nil {
			return err
		}
		if len(m.Files) == 0 {
			x.SetVector(v.Index, nil)
			return nil
		}
		e, err := NewEventfd(m.Files[0])
		if err != nil {
			return err
		}
		x.SetVector(v.Index, e)
		return nil
	case ipc.KindVectors:
		var v ipc.Vectors
		if err := m.Decode(&v); err != nil {
			return err
		}
		if len(v.Indexes) != len(m.Files) {
			return fmt.Errorf("%d interrupt vectors with %d files", len(v.Indexes), len(m.Files))
		}
		for i, f := range m.Files {
			e, err := NewEventfd(f)
			if err != nil {
				return err
			}
			x.SetVector(v.Indexes[i], e)
		}
		return nil
	default:
		return fmt.Errorf("unknown message %q", m.Kind)
	}
}
