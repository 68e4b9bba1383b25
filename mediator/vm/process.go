package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// stopGrace is the time that an executor has to end by itself.
const stopGrace = 500 * time.Millisecond

// process is one executor process, from its start to its end.
type process struct {
	b    *executors
	ref  vgpu.ContextRef
	done chan struct{} // closed when the process is gone and the slot is free
	// rings is the number of bytes after BAR2's header for rings; 0: rings may lie anywhere.
	rings int
	// task is what the context asks for if it floats, else nil. gpu, an index of b.pages, and grant
	// are what it got; run alone uses them.
	task   *ipc.Task
	gpu    int
	grant  uint64
	placed chan ipc.Place // has the daemon's newest answer
	moves  moves

	ctx    context.Context // ends with stop
	cancel context.CancelFunc

	executor    *started // used by run alone
	spare       bool     // the executor was a spare one; used by run alone
	sentHandles bool     // used by receive alone
	faulted     bool     // used by receive alone

	vectors sync.Mutex // orders sends, so that a vector's newest eventfd is sent last
	// changed reports whether vectors have changed since the executor was started, and it was not ready.
	// vectors guards it.
	changed bool

	mu       sync.Mutex
	conn     *ipc.Conn // nil before the start and after the end
	ready    bool      // the executor reads messages
	stopping bool
	pending  map[uint64]func(ipc.Message, error)
	lastID   uint64
}

func newProcess(b *executors, ref vgpu.ContextRef) *process {
	p := &process{
		b: b, ref: ref, done: make(chan struct{}), pending: make(map[uint64]func(ipc.Message, error)), placed: make(chan ipc.Place, 1),
		gpu: b.home(),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// run starts the process and serves it until it ends.
func (p *process) run() {
	defer p.cancel()
	log := p.b.log.With("context", p.ref.Slot)
	if p.b.awaitStart(p.ctx, p.ref.Slot) != nil {
		log.Debug("executor no longer needed")
		return
	}
	if p.task != nil {
		defer p.b.daemons.dropTask(p.task)
		defer p.forgetMove()
		p.b.daemons.addTask(*p.task)
		if !p.awaitGPU(log) {
			return
		}
	}
	for p.runOnce(log) {
		if !p.awaitGPU(log) {
			return
		}
	}
}

// runOnce starts an executor and serves it until it ends. It reports whether that has only left the
// GPU, or has died while it made the context anew that had left.
func (p *process) runOnce(log *slog.Logger) (left bool) {
	p.b.gpuOf[p.ref.Slot].Store(int32(p.gpu))
	if p.b.isDraining(p.gpu) {
		log.Info("executor not started", "err", errDraining)
		p.b.fault(p.ref.Slot, errDraining.Error())
		p.b.dev.ContextFaulted(p.ref, abi.ErrorExecutorStart)
		return false
	}
	cmd, conn, err := p.start()
	if err != nil {
		p.free() // the process may have begun to use the slot
	}
	if errors.Is(err, errNoExecutor) {
		log.Debug("executor no longer needed")
		return false
	}
	if err != nil {
		if p.returns() {
			// It died before it had its setup, which is no worse than a moment later.
			if p.pause(); p.left(log) {
				return true
			}
		}
		log.Error("executor not started", "err", err)
		p.b.dev.ContextFaulted(p.ref, abi.ErrorExecutorStart)
		return false
	}
	if err := p.sendAllVectors(p.b.dev.Config().Vectors); err != nil {
		log.Warn("send the interrupt vectors", "err", err)
	}
	code, err := p.receive(conn)
	p.closeConn(conn)
	p.dropHandles()
	werr := wait(cmd)
	p.free()
	last := p.closeOutput()
	p.mu.Lock()
	stopped := p.stopping
	p.mu.Unlock()
	p.b.daemons.notifyChange()
	if stopped {
		log.Debug("executor ended")
		return false
	}
	if p.diedAsSpare(code, err) {
		log.Debug("the spare executor has died, and another is started", "err", errors.Join(err, werr), "last", last)
		return p.runOnce(log)
	}
	if p.pause(); !p.faulted && p.left(log) {
		return true
	}
	if p.faulted && errors.Is(err, io.EOF) && werr == nil {
		// Its kernel can't be stopped. The guest knows of the kernel already, and learns now that
		// the context's channels are no longer served.
		log.Debug("executor ended with its kernel")
		p.b.dev.ContextFaulted(p.ref, code)
		return false
	}
	log.Error("executor died", "err", errors.Join(err, werr), "last", last)
	p.b.dev.ContextFaulted(p.ref, code)
	return false
}

// free gives back the context's slot on the control page. The process has ended.
func (p *process) free() {
	page := p.page()
	page.FreeLaunchSlots(p.ref.Slot)
	if numbers := page.Context(p.ref.Slot).EventNumbers(); numbers != 0 {
		if err := p.b.dev.FailEvents(numbers); err != nil {
			p.b.log.Warn("the guest is not told that event kernels have ended", "err", err)
		}
	}
	page.FreeEventNumbers(p.ref.Slot)
	page.Context(p.ref.Slot).Free()
	page.SetDisabled(p.ref.Slot, false)
	page.SetSliced(p.ref.Slot, false)
	page.AddChange()
	page.Admitter(p.ref.Slot).WakeNext() // launches may wait for the room that it had on the GPU
}

// start starts the process and sends its setup. It returns errNoExecutor if stop was called.
func (p *process) start() (_ *exec.Cmd, _ *ipc.Conn, err error) {
	p.mu.Lock()
	stopping := p.stopping
	p.mu.Unlock()
	if stopping {
		return nil, nil, errNoExecutor
	}
	shared := p.b.dev.Shared()
	if shared == nil {
		return nil, nil, errors.New("the device has no shared memory")
	}
	st, err := p.setUpSpare(shared)
	p.spare = st != nil
	if err == nil && st == nil {
		if st, err = p.b.launch(p.b.log.With("context", p.ref.Slot)); err == nil {
			err = p.setUp(st, shared)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, st.end())
	}
	p.executor = st
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		p.executor = nil
		return nil, nil, errors.Join(errNoExecutor, st.end())
	}
	p.conn, p.ready, p.sentHandles = st.conn, false, false
	return st.cmd, st.conn, nil
}

// setUp sends an executor its setup.
func (p *process) setUp(st *started, shared *os.File) error {
	files := []*os.File{shared, p.page().File()}
	if p.b.until != nil {
		files = append(files, p.b.until)
	}
	s := p.setup()
	if saved, closed := p.returning(); saved != nil {
		s.Saved, s.Closed = true, closed
		files = append(files, saved)
	}
	if events := p.b.dev.Events(); events != nil {
		s.Events = true
		files = append(files, events)
	}
	m, err := ipc.NewMessage(ipc.KindSetup, s, files...)
	if err != nil {
		return err
	}
	return st.conn.Send(m)
}

// closeOutput stops capturing the output of an executor that has ended, and returns the last of it.
func (p *process) closeOutput() string {
	last, err := p.executor.output.End()
	if err != nil {
		p.b.log.Debug("close an executor's standard error", "err", err)
	}
	return last
}

// setup returns the executor's first message.
func (p *process) setup() ipc.Setup {
	spec := &p.b.spec
	return ipc.Setup{
		Guest: spec.Name, Slot: p.ref.Slot, GPU: p.b.gpu(p.gpu), Header: p.b.header, Rings: p.rings, LastFault: p.b.lastFault(p.ref.Slot),
		MemoryLimit: spec.MemoryLimit, Grant: p.grant, KernelTimeLimit: spec.KernelTimeLimit, Handles: true, Grows: p.task != nil,
		Sealed: spec.Sandbox != nil,
	}
}

// receive handles the executor's messages until the connection ends. It returns what the end means
// to the guest.
func (p *process) receive(conn *ipc.Conn) (abi.ErrorCode, error) {
	ready := false
	started := p.limitStart(conn)
	defer started()
	for {
		m, err := conn.Receive()
		if err != nil {
			switch {
			case ready:
				return abi.ErrorExecutorLost, err
			case started():
				return abi.ErrorExecutorStart, fmt.Errorf("it was not ready in time: %w", os.ErrDeadlineExceeded)
			}
			return abi.ErrorExecutorStart, err
		}
		if len(m.Files) > 0 && m.Kind != ipc.KindHandles && (m.Kind != ipc.KindSave || m.ID != 0 || len(m.Files) > 1) {
			return abi.ErrorInternal, errors.Join(fmt.Errorf("executor sent %d files", len(m.Files)), m.CloseFiles())
		}
		switch m.Kind {
		case ipc.KindReady:
			started()
			if m.Error != "" {
				return p.notReady(m)
			}
			ready = true
			p.mu.Lock()
			p.ready = true
			p.mu.Unlock()
			p.sendChangedVectors(p.b.dev.Config().Vectors)
			p.returned()
			p.b.dev.ContextReady(p.ref)
			p.b.daemons.notifyChange()
			p.b.keepSpare(p.gpu, p.rings)
		case ipc.KindHandles:
			if err := p.receiveHandles(&m); err != nil {
				return abi.ErrorInternal, errors.Join(err, m.CloseFiles())
			}
		case ipc.KindSave:
			if m.ID != 0 || len(m.Files) == 0 {
				p.reply(m)
			} else if err := p.rescued(&m); err != nil {
				return abi.ErrorInternal, errors.Join(err, m.CloseFiles())
			}
		case ipc.KindOpen, ipc.KindShut:
			p.reply(m)
		case ipc.KindGrow:
			if err := p.receiveGrow(&m); err != nil {
				return abi.ErrorInternal, err
			}
		case ipc.KindFault:
			var f ipc.Fault
			if err := m.Decode(&f); err != nil {
				return abi.ErrorInternal, err
			}
			p.faulted = true
			p.b.fault(p.ref.Slot, f.Text)
			p.b.log.Warn("context ended by a fault", "context", p.ref.Slot, "fault", f.Text)
			p.b.lostGPU(abi.ErrorCode(f.Code))
			p.b.dev.ContextFaulted(p.ref, abi.ErrorCode(f.Code))
		case ipc.KindFailed:
			var f ipc.ChannelFailure
			if err := m.Decode(&f); err != nil {
				return abi.ErrorInternal, err
			}
			p.b.log.Warn("channel ended", "context", p.ref.Slot, "channel", f.Index, "err", abi.ErrorCode(f.Code))
			p.b.dev.ChannelFailed(vgpu.ChannelRef{Slot: f.Index, Generation: f.Generation}, abi.ErrorCode(f.Code))
		default:
			return abi.ErrorInternal, fmt.Errorf("executor sent %q", m.Kind)
		}
	}
}

// stop asks the process to end, without waiting for it.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	p.stopping = true
	p.cancel()
	if p.conn != nil {
		// The executor ends when its connection does. A stuck one is not waited for.
		if err := p.conn.Shut(stopGrace); err != nil {
			p.b.log.Debug("shut down an executor's connection", "err", err)
		}
	}
}

// wait waits for a process that should be ending, and kills it after stopGrace.
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
