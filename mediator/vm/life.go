package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// stopGrace is how long an executor has to end by itself.
const stopGrace = 500 * time.Millisecond

// readyLimit is how long an executor may take to have a context on the GPU.
const readyLimit = 30 * time.Second

// errNoExecutor is the answer to whatever is asked of an executor that is gone.
var errNoExecutor = errors.New("the context has no executor")

// life is one executor process, from its start to its end.
type life struct {
	b    *executors
	ref  vgpu.ContextRef
	done chan struct{} // closed when the process is gone and the slot is free
	// rings is how much of BAR2 behind its header is for rings; 0: they lie anywhere.
	rings int

	wanted context.Context // ends with stop
	leave  context.CancelFunc

	said    *Said // from start to end; run's own
	handed  bool  // its handles; attend's own
	faulted bool  // it told of a fault; attend's own

	vectors sync.Mutex // so that the newest of a vector is sent last

	mu       sync.Mutex
	conn     *ipc.Conn // nil before the start and after the end
	ready    bool      // and so it reads what it is sent
	stopping bool
	asked    map[uint64]func(error)
	lastID   uint64
}

func newLife(b *executors, ref vgpu.ContextRef) *life {
	l := &life{b: b, ref: ref, done: make(chan struct{}), asked: make(map[uint64]func(error))}
	l.wanted, l.leave = context.WithCancel(context.Background())
	return l
}

// run starts the process and attends to it until it ends.
func (l *life) run() {
	defer l.leave()
	log := l.b.log.With("context", l.ref.Slot)
	if l.b.awaitStart(l.wanted, l.ref.Slot) != nil {
		log.Debug("executor not needed any more")
		return
	}
	cmd, conn, err := l.start()
	if err != nil {
		l.free() // it may have begun to use the slot
	}
	if errors.Is(err, errNoExecutor) {
		log.Debug("executor not needed any more")
		return
	}
	if err != nil {
		log.Error("executor not started", "err", err)
		l.b.dev.ContextFaulted(l.ref, abi.ErrorExecutorStart)
		return
	}
	code, err := l.attend(conn)
	l.hangUp(conn)
	l.takeBack()
	werr := wait(cmd)
	l.free()
	last := l.quiet()
	l.mu.Lock()
	stopped := l.stopping
	l.mu.Unlock()
	l.b.daemons.changed()
	if stopped {
		log.Debug("executor ended")
		return
	}
	if l.faulted && errors.Is(err, io.EOF) && werr == nil {
		// A kernel runs that nothing but its end stops. The guest was told of that, and
		// is of the context's channels now, to which nobody attends.
		log.Debug("executor ended with its kernel")
		l.b.dev.ContextFaulted(l.ref, code)
		return
	}
	log.Error("executor died", "err", errors.Join(err, werr), "last", last)
	l.b.dev.ContextFaulted(l.ref, code)
}

// free gives the context's slot on the page back. The process is gone.
func (l *life) free() {
	l.b.page.FreeStubs(l.ref.Slot)
	l.b.page.Context(l.ref.Slot).Free()
	l.b.page.SetDisabled(l.ref.Slot, false)
	l.b.page.SetSliced(l.ref.Slot, false)
	l.b.page.AddChange()
	l.b.page.Ranks(l.ref.Slot).Ring() // it may have had room on the GPU that others wait for
}

// start makes the process and gives it its setup. The error is errNoExecutor
// where it is not wanted any more.
func (l *life) start() (_ *exec.Cmd, _ *ipc.Conn, err error) {
	l.mu.Lock()
	stopping := l.stopping
	l.mu.Unlock()
	if stopping {
		return nil, nil, errNoExecutor
	}
	shared := l.b.dev.Shared()
	if shared == nil {
		return nil, nil, errors.New("the device has no shared memory")
	}
	conn, end, err := ipc.Pair()
	if err != nil {
		return nil, nil, err
	}
	s, stderr, err := Hear(l.b.log.With("context", l.ref.Slot), "executor says")
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(), end.Close())
	}
	l.said = s
	defer func() {
		if err != nil {
			l.quiet()
		}
	}()
	cmd := l.b.command()
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.ExtraFiles = []*os.File{end}
	// A signal to the terminal's group is vm's to pass on.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if cerr := errors.Join(end.Close(), stderr.Close()); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), conn.Close())
	}
	files := []*os.File{shared, l.b.page.File()}
	if l.b.until != nil {
		files = append(files, l.b.until)
	}
	m, err := ipc.NewMessage(ipc.KindSetup, l.setup(), files...)
	if err == nil {
		err = conn.Send(m)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(), cmd.Process.Kill(), cmd.Wait())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return nil, nil, errors.Join(errNoExecutor, conn.Close(), cmd.Process.Kill(), cmd.Wait())
	}
	l.conn = conn
	return cmd, conn, nil
}

// quiet ends the hearing of an executor that has ended, and returns what it said last.
func (l *life) quiet() string {
	last, err := l.said.End()
	if err != nil {
		l.b.log.Debug("close an executor's standard error", "err", err)
	}
	return last
}

// setup is what the executor is told to begin with.
func (l *life) setup() ipc.Setup {
	spec := &l.b.spec
	return ipc.Setup{
		Guest: spec.Name, Slot: l.ref.Slot, GPU: spec.GPU, Header: l.b.header, Rings: l.rings, LastFault: l.b.lastFault(l.ref.Slot),
		MemoryLimit: spec.MemoryLimit, KernelTimeLimit: spec.KernelTimeLimit, Handles: true,
		Sealed: spec.Sandbox != nil,
	}
}

// attend receives what the executor has to say until it says no more. The code
// is what the context's end means to the guest.
func (l *life) attend(conn *ipc.Conn) (abi.ErrorCode, error) {
	ready := false
	inTime := l.limitStart(conn)
	defer inTime()
	for {
		m, err := conn.Receive()
		if err != nil {
			if !ready {
				return abi.ErrorExecutorStart, err
			}
			return abi.ErrorExecutorLost, err
		}
		if len(m.Files) > 0 && m.Kind != ipc.KindHandles {
			return abi.ErrorInternal, errors.Join(fmt.Errorf("executor sent %d files", len(m.Files)), m.CloseFiles())
		}
		switch m.Kind {
		case ipc.KindReady:
			inTime()
			if m.Error != "" {
				return l.notReady(m)
			}
			ready = true
			l.mu.Lock()
			l.ready = true
			l.mu.Unlock()
			l.sendVectors(0, l.b.dev.Config().Vectors)
			l.b.dev.ContextReady(l.ref)
			l.b.daemons.changed()
		case ipc.KindHandles:
			if err := l.handOver(&m); err != nil {
				return abi.ErrorInternal, errors.Join(err, m.CloseFiles())
			}
		case ipc.KindOpen, ipc.KindShut:
			l.answered(m)
		case ipc.KindFault:
			var f ipc.Fault
			if err := m.Decode(&f); err != nil {
				return abi.ErrorInternal, err
			}
			l.faulted = true
			l.b.fault(l.ref.Slot, f.Text)
			l.b.log.Warn("context ended by a fault", "context", l.ref.Slot, "fault", f.Text)
			l.b.dev.ContextFaulted(l.ref, abi.ErrorCode(f.Code))
		case ipc.KindFailed:
			var f ipc.ChannelFailure
			if err := m.Decode(&f); err != nil {
				return abi.ErrorInternal, err
			}
			l.b.log.Warn("channel ended", "context", l.ref.Slot, "channel", f.Index, "err", abi.ErrorCode(f.Code))
			l.b.dev.ChannelFailed(vgpu.ChannelRef{Slot: f.Index, Generation: f.Generation}, abi.ErrorCode(f.Code))
		default:
			return abi.ErrorInternal, fmt.Errorf("executor sent %q", m.Kind)
		}
	}
}

// limitStart has Receive on conn fail unless what it returns is called in time,
// once or more often.
func (l *life) limitStart(conn *ipc.Conn) (inTime func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if clock.Sleep(ctx, l.b.clock, readyLimit) != nil {
			return
		}
		l.b.log.Warn("executor is not ready in time", "context", l.ref.Slot, "limit", readyLimit)
		if err := conn.Expire(); err != nil {
			l.b.log.Debug("expire an executor's link", "err", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// notReady is what it means that an executor has no context: m says why, and its
// body, if it has one, is a [ipc.Fault].
func (l *life) notReady(m ipc.Message) (abi.ErrorCode, error) {
	err := errors.New(m.Error)
	if m.Body == nil {
		return abi.ErrorExecutorStart, err
	}
	var f ipc.Fault
	if derr := m.Decode(&f); derr != nil {
		return abi.ErrorInternal, errors.Join(err, derr)
	}
	switch code := abi.ErrorCode(f.Code); code {
	case abi.ErrorDeviceLost, abi.ErrorLimit:
		return code, err
	default:
		return abi.ErrorExecutorStart, err
	}
}

// ask sends a request whose reply calls done. After an error done is not called.
func (l *life) ask(kind ipc.Kind, body any, done func(error)) error {
	m, err := ipc.NewMessage(kind, body)
	if err != nil {
		return err
	}
	if l == nil {
		return errNoExecutor
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return errNoExecutor
	}
	l.lastID++
	m.ID = l.lastID
	if err := l.send(m); err != nil {
		return err
	}
	l.asked[m.ID] = done
	return nil
}

// answered passes on a reply.
func (l *life) answered(m ipc.Message) {
	l.mu.Lock()
	done := l.asked[m.ID]
	delete(l.asked, m.ID)
	l.mu.Unlock()
	if done == nil {
		return
	}
	if m.Error != "" {
		done(errors.New(m.Error))
		return
	}
	done(nil)
}

// sendVectors hands the executor the eventfds of some interrupt vectors.
func (l *life) sendVectors(start, count int) {
	for v := start; v < start+count; v++ {
		if err := l.sendVector(v); err != nil {
			l.b.log.Warn("hand over an interrupt vector", "vector", v, "err", err)
		}
	}
}

func (l *life) sendVector(v int) (err error) {
	l.vectors.Lock()
	defer l.vectors.Unlock()
	f, err := l.b.dev.Vector(v)
	if err != nil {
		return err
	}
	var files []*os.File
	if f != nil {
		files = append(files, f)
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	m, err := ipc.NewMessage(ipc.KindVector, ipc.Vector{Index: v}, files...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || !l.ready {
		return nil // it gets all vectors when it is ready
	}
	return l.send(m)
}

// send gives up on an executor that reads nothing any more; the caller holds mu.
func (l *life) send(m ipc.Message) error {
	err := l.conn.Send(m)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.Join(err, l.conn.Expire())
	}
	return err
}

// stop has the process end. It does not wait for that.
func (l *life) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return
	}
	l.stopping = true
	l.leave()
	if l.conn != nil {
		// The executor ends when its link does. One that is stuck is not waited
		// for.
		if err := l.conn.Shut(stopGrace); err != nil {
			l.b.log.Debug("shut an executor's link", "err", err)
		}
	}
}

// hangUp closes the link and fails what is unanswered.
func (l *life) hangUp(conn *ipc.Conn) {
	l.mu.Lock()
	l.conn = nil
	asked := l.asked
	l.asked = make(map[uint64]func(error))
	l.mu.Unlock()
	if err := conn.Close(); err != nil {
		l.b.log.Debug("close an executor's link", "err", err)
	}
	for _, done := range asked {
		done(errNoExecutor)
	}
}

// wait waits for a process that should be ending, and helps where it does not.
func wait(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return err
	case <-grace.C:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-ended
}
