package vm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// A context that floats may leave its GPU when the daemon asks for it: its executor writes all of it
// to a file in memory, and ends. The device and the guest notice nothing. The file is kept here until
// the daemon has placed the context again, on the same GPU or another, where a new executor makes it
// anew. Meanwhile the guest's commands wait in the rings, and requests about channels wait here.

// whereabouts is where a context that floats is.
type whereabouts = uint32

const (
	onGPU   whereabouts = iota // or it never was on one
	leaves                     // its executor was asked to save it
	offGPU                     // it has no executor
	returns                    // a new executor makes it anew
)

// heldRequest is a request about a channel that waits for an executor.
type heldRequest struct {
	kind    ipc.Kind
	channel ipc.Channel
	done    func(error)
}

// moves is the part of a process that is about moves. The process's mu guards it.
type moves struct {
	at     whereabouts
	times  uint32   // how often the context has left
	saved  *os.File // nil: it is not off the GPU
	bytes  uint64   // of the file
	tries  int      // to make it anew
	wants  bool     // the daemon knows that there are commands
	grow   uint64   // bytes that the executor asks for; 0: nothing
	held   []heldRequest
	closed []int // channels that were closed while the context was off the GPU
	// granted is the memory in bytes that the context was granted last.
	granted uint64
}

// leave has a context leave its GPU.
func (b *executors) leave(l ipc.Leave) {
	left := ipc.Left{Slot: l.Slot, Generation: l.Generation}
	p := b.floating(l.Slot, l.Generation)
	if p == nil {
		left.Error = "there is no such context"
		b.daemons.sendLeft(left)
		return
	}
	if err := p.leave(); err != nil {
		left.Error = err.Error()
		p.stays(left)
	}
}

// floating returns the process of a context that floats, or nil if there is none.
func (b *executors) floating(slot int, generation uint32) *process {
	if slot < 0 || slot >= ipc.MaxContexts {
		return nil
	}
	p := b.process(slot)
	if p == nil || p.task == nil || p.ref != (vgpu.ContextRef{Slot: slot, Generation: generation}) {
		return nil
	}
	return p
}

// leave asks the executor to save the context. Unless it returns an error, the daemon is told what
// became of it.
func (p *process) leave() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.conn == nil || !p.ready || p.stopping || p.moves.at == returns:
		return errors.New("it is only about to start, or to end")
	case p.moves.at != onGPU:
		return errors.New("it is leaving already")
	}
	fd, err := unix.MemfdCreate(fmt.Sprintf("vgpud-context-%d", p.ref.Slot), unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create a file for a context: %w", err)
	}
	f := os.NewFile(uintptr(fd), "context")
	m, err := ipc.NewMessage(ipc.KindSave, nil, f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.b.kicked[p.ref.Slot].Store(false)
	p.setAt(leaves)
	err = p.ask(m, func(m ipc.Message, err error) { p.answeredSave(f, m, err) })
	if err != nil {
		p.setAt(onGPU)
		return errors.Join(err, f.Close())
	}
	return nil
}

// setAt sets where the context is. Preconditions: mu is held.
func (p *process) setAt(at whereabouts) {
	p.moves.at = at
	p.b.whereabouts[p.ref.Slot].Store(at)
}

// answeredSave handles the executor's answer: it ends soon, or goes on.
func (p *process) answeredSave(f *os.File, m ipc.Message, err error) {
	var s ipc.Saved
	if err == nil {
		err = m.Decode(&s)
	}
	p.mu.Lock()
	if err == nil {
		p.moves.saved, p.moves.wants, p.ready = f, s.Wants, false
		// It ends when its connection does. If it closed that itself, its answer could be lost.
		err = p.conn.Shut(stopGrace)
		p.mu.Unlock()
		if err != nil {
			p.b.log.Debug("shut down an executor's connection", "err", err)
		}
		return
	}
	if p.moves.saved != nil { // it was rescued meanwhile
		p.mu.Unlock()
		if err := f.Close(); err != nil {
			p.b.log.Debug("close a context's file", "err", err)
		}
		return
	}
	p.setAt(onGPU)
	failed := p.sendHeld()
	p.mu.Unlock()
	fail(failed)
	p.b.log.Debug("a context stays on its GPU", "context", p.ref.Slot, "err", err)
	if cerr := f.Close(); cerr != nil {
		p.b.log.Debug("close a context's file", "err", cerr)
	}
	p.stays(ipc.Left{Slot: p.ref.Slot, Generation: p.ref.Generation, Error: err.Error()})
}

// stays tells the daemon why a context stays on its GPU.
func (p *process) stays(l ipc.Left) {
	p.b.daemons.sendLeft(l)
	p.mu.Lock()
	grow, at := p.moves.grow, p.moves.at
	p.mu.Unlock()
	if grow > 0 && at == onGPU { // the daemon may have had it leave instead of answering
		p.b.daemons.sendGrow(p.growth(grow))
	}
}

// rescued takes over a context that its executor has saved since its GPU was lost.
func (p *process) rescued(m *ipc.Message) error {
	var s ipc.Saved
	if err := m.Decode(&s); err != nil {
		return err
	}
	if p.task == nil {
		return errors.New("executor saved a context that does not float")
	}
	p.b.lostGPU(abi.ErrorDeviceLost)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moves.saved != nil {
		return errors.New("executor saved its context twice")
	}
	p.moves.saved, p.moves.wants, p.ready = m.Files[0], s.Wants, false
	p.setAt(leaves)
	m.Files = nil
	return p.conn.Shut(stopGrace)
}

// hold keeps a request for the next executor. A channel that is closed while there is none is closed
// at once: the error is errNoExecutor. Preconditions: mu is held, and the context is not on its GPU.
func (p *process) hold(r heldRequest) error {
	if p.moves.at != offGPU {
		p.moves.held = append(p.moves.held, r)
		return nil
	}
	if r.kind == ipc.KindOpen {
		p.moves.held = append(p.moves.held, r)
		p.wantLocked() // the guest waits for it
		return nil
	}
	p.closeAway(r.channel)
	return errNoExecutor
}

// holdUnanswered keeps a request that an executor did not answer which has saved its context since its
// GPU was lost, and reports whether it did.
func (p *process) holdUnanswered(r heldRequest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moves.saved == nil || p.stopping {
		return false
	}
	p.moves.held = append(p.moves.held, r)
	return true
}

// closeAway closes a channel of a context without an executor. Preconditions: mu is held.
func (p *process) closeAway(c ipc.Channel) {
	p.moves.held = slices.DeleteFunc(p.moves.held, func(h heldRequest) bool {
		return h.kind == ipc.KindOpen && h.channel.Index == c.Index
	})
	p.moves.closed = append(p.moves.closed, c.Index)
}

// takeHeld returns the requests that wait. Preconditions: mu is held.
func (p *process) takeHeld() []heldRequest {
	held := p.moves.held
	p.moves.held = nil
	return held
}

// sendHeld sends the requests that waited, before any that comes now: a channel is closed after it was
// opened. It returns those that can't be sent, to be told so without mu. Preconditions: mu is held, and
// the context is on its GPU.
func (p *process) sendHeld() (failed []heldRequest) {
	for _, h := range p.takeHeld() {
		m, err := ipc.NewMessage(h.kind, h.channel)
		if err == nil {
			err = p.ask(m, p.replied(h))
		}
		if err != nil {
			failed = append(failed, h)
		}
	}
	return failed
}

// fail answers requests that could not be sent.
func fail(failed []heldRequest) {
	for _, h := range failed {
		h.done(errNoExecutor)
	}
}

// left records that the executor has ended which has saved the context, and tells the daemon. It
// reports false if the context was not saved.
func (p *process) left(log *slog.Logger) bool {
	p.mu.Lock()
	if p.moves.saved == nil || p.stopping || p.moves.at == onGPU {
		p.mu.Unlock()
		return false
	}
	m := &p.moves
	again := m.at == returns // the new executor has died
	if again && m.tries >= maxTries {
		p.mu.Unlock()
		return false
	}
	m.bytes = usedBytes(m.saved)
	m.times++
	m.grow = 0 // the next executor asks itself
	p.b.daemons.forgetGrow(p.ref.Slot)
	p.setAt(offGPU)
	// An answer about an earlier time is of no use.
	select {
	case <-p.placed:
	default:
	}
	var closed []heldRequest
	for _, h := range p.takeHeld() {
		if h.kind == ipc.KindOpen {
			m.held, m.wants = append(m.held, h), true
		} else {
			p.closeAway(h.channel)
			closed = append(closed, h)
		}
	}
	m.wants = m.wants || again || p.b.kicked[p.ref.Slot].Load()
	l := ipc.Left{Slot: p.ref.Slot, Generation: p.ref.Generation, Times: m.times, Bytes: m.bytes, Memory: m.granted, Wants: m.wants}
	p.b.daemons.sendLeft(l)
	p.mu.Unlock()
	log.Debug("context has left its GPU", "gpu", p.b.gpu(p.gpu).Name, "bytes", l.Bytes, "wants", l.Wants)
	fail(closed)
	return true
}

// maxTries is how many executors may die while they make a context anew. Before the next is started,
// there is a pause of tryPause for each: the daemon may not know yet that the GPU is lost.
const (
	maxTries = 5
	tryPause = 250 * time.Millisecond
)

// pause waits before another executor makes the context anew that one has died on.
func (p *process) pause() {
	p.mu.Lock()
	n := 0
	if p.moves.at == returns {
		n = p.moves.tries
	}
	p.mu.Unlock()
	_ = clock.Sleep(p.ctx, p.b.clock, time.Duration(n)*tryPause) // the process was stopped
}

// returnRate is how fast memory is copied to a GPU at least, in bytes a second.
const returnRate = 64 << 20

// returnLimit returns how long copying memory to the GPU may take.
func (p *process) returnLimit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moves.saved == nil {
		return 0
	}
	return time.Duration(p.moves.bytes/returnRate) * time.Second
}

// usedBytes returns how much memory a file takes.
func usedBytes(f *os.File) uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}

// kick notes that the guest has rung a doorbell of a context that is not on its GPU.
func (b *executors) kick(slot int) {
	b.kicked[slot].Store(true)
	if b.whereabouts[slot].Load() != offGPU {
		return // the executor, or left, looks
	}
	if p := b.process(slot); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wantLocked()
	}
}

// wantLocked tells the daemon, once, that a context without an executor has commands. Preconditions:
// mu is held.
func (p *process) wantLocked() {
	if p.moves.at == offGPU && !p.moves.wants {
		p.moves.wants = true
		p.b.daemons.sendWants(ipc.Leave{Slot: p.ref.Slot, Generation: p.ref.Generation})
	}
}

// returning returns what the new executor of a context that has left is told: the file, which is nil
// if the context has not left, and the channels that were closed since.
func (p *process) returning() (f *os.File, closed []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moves.saved != nil {
		p.moves.tries++
		p.setAt(returns)
	}
	return p.moves.saved, p.moves.closed
}

// returns reports whether a new executor has been told to make the context anew, and is not ready.
func (p *process) returns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moves.saved != nil && p.moves.at == returns
}

// returned records that the new executor is ready.
func (p *process) returned() {
	p.mu.Lock()
	f := p.moves.saved
	if f == nil {
		p.mu.Unlock()
		return
	}
	p.moves.saved, p.moves.closed, p.moves.wants, p.moves.tries = nil, nil, false, 0
	p.setAt(onGPU)
	failed := p.sendHeld()
	p.mu.Unlock()
	fail(failed)
	p.b.daemons.forgetLeft(p.ref.Slot)
	if err := f.Close(); err != nil {
		p.b.log.Debug("close a context's file", "err", err)
	}
}

// forgetMove gives up what is kept of a context that has ended.
func (p *process) forgetMove() {
	p.mu.Lock()
	f, held := p.moves.saved, p.takeHeld()
	p.moves.saved = nil
	p.setAt(onGPU)
	p.mu.Unlock()
	p.b.daemons.forgetGrow(p.ref.Slot)
	if f != nil {
		p.b.daemons.forgetLeft(p.ref.Slot)
		if err := f.Close(); err != nil {
			p.b.log.Debug("close a context's file", "err", err)
		}
	}
	fail(held)
}

// sendLeft tells the daemons, present and future, that a context has left, or the present ones why it
// stays.
func (c *control) sendLeft(l ipc.Left) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Error == "" {
		c.away = append(slices.DeleteFunc(c.away, func(o ipc.Left) bool { return o.Slot == l.Slot }), l)
	}
	c.broadcastBody(ipc.KindLeft, l)
}

// sendWants tells them that a context that has left has commands.
func (c *control) sendWants(l ipc.Leave) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.away {
		if c.away[i].Slot == l.Slot {
			c.away[i].Wants = true
		}
	}
	c.broadcastBody(ipc.KindWants, l)
}

// forgetLeft records that the context in a slot is no longer off its GPU.
func (c *control) forgetLeft(slot int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = slices.DeleteFunc(c.away, func(o ipc.Left) bool { return o.Slot == slot })
}

// handleLeave follows the daemon's message that a context is to leave.
func (c *control) handleLeave(m *ipc.Message) {
	var l ipc.Leave
	if err := m.Decode(&l); err != nil {
		c.log.Warn("a message of the daemon can't be read", "err", err)
		return
	}
	if c.leave != nil {
		c.leave(l)
	}
}
