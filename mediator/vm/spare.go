package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// A spare executor has opened the guest's GPU and waits for the guest's next context, which so is
// ready sooner by the time that opening takes: 0.1 s on an NVIDIA GPU. If the daemon lends it
// memory on the GPU it makes a context, too, which then only has to be handed over; without, it has
// no memory there. A guest has one from shortly after one of its contexts has begun, if
// [ipc.GPU.WarmExecutors] asks for it. Without a context it has nothing of the guest's, and so
// outlives resets of the device. With one it has BAR2, and ends with them. Of a guest that floats
// it is on the GPU of the context that has begun last.
type spare struct {
	gpu    int                // an index of executors.pages
	rings  int                // of the context that has begun: the next one is taken to be like it
	number uint64             // by which the daemon knows it
	pid    int                // of its process, before the daemon is asked
	s      *started           // nil until it can be used
	cancel context.CancelFunc // of the wait for its end
	// settled is closed when it can be used or it is clear that it can't.
	settled chan struct{}
	done    chan struct{} // closed when runSpare has returned
	// answered has the daemon's answer, once. asks and lent are guarded by executors.mu: whether the
	// answer is waited for, and whether there is memory to be given back.
	answered   chan bool
	asks, lent bool
}

const (
	// spareDelay keeps the start of a spare executor out of the way of the program whose context has
	// just begun: both would wait for the GPU's driver.
	spareDelay = 250 * time.Millisecond
	// spareLife is how long a spare executor waits for a context.
	spareLife = 10 * time.Minute
	// lendLimit is how long it waits for the daemon's answer.
	lendLimit = 5 * time.Second
	// ofAnyGPU is the index of no GPU.
	ofAnyGPU = -1
)

// message returns what the daemon is told of it.
func (sp *spare) message() ipc.Spare { return ipc.Spare{Number: sp.number, GPU: sp.gpu, PID: sp.pid} }

// keepSpare has the guest have a spare executor of a GPU soon, for a context with rings of so many bytes,
// if it has none and should have one.
func (b *executors) keepSpare(gpu, rings int) {
	if !b.gpu(gpu).WarmExecutors {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spare != nil || b.drained[b.gpu(gpu).Name] || b.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.lastSpare++
	sp := &spare{gpu: gpu, rings: rings, number: b.lastSpare, cancel: cancel, settled: make(chan struct{}), done: make(chan struct{}), answered: make(chan bool, 1)}
	b.spare = sp
	b.ended.Go(func() {
		defer close(sp.done)
		defer cancel()
		if err := b.runSpare(ctx, sp); err != nil {
			b.log.Debug("no spare executor", "err", err)
		}
	})
}

// runSpare starts the spare executor and ends it when nobody has taken it for too long.
func (b *executors) runSpare(ctx context.Context, sp *spare) error {
	settle := sync.OnceFunc(func() { close(sp.settled) })
	defer settle()
	if clock.Sleep(ctx, b.clock, spareDelay) != nil {
		return nil // it is no longer wanted
	}
	s, err := b.launchSpare(sp.gpu)
	if err == nil {
		err = b.makeAhead(ctx, sp, s)
	}
	if err != nil {
		b.dropSpare(sp)
		err = errors.Join(err, s.end())
		b.repay(sp)
		return err
	}
	b.mu.Lock()
	wanted := b.spare == sp
	if wanted {
		sp.s = s
	}
	b.mu.Unlock()
	settle()
	if !wanted {
		return b.endOf(sp, s)
	}
	if clock.Sleep(ctx, b.clock, spareLife) == nil && b.dropSpare(sp) {
		return b.endOf(sp, s)
	}
	return nil
}

// endOf ends a spare executor that nobody has taken, and then gives back what it was lent.
func (b *executors) endOf(sp *spare, s *started) error {
	err := s.end()
	b.repay(sp)
	return err
}

// launchSpare starts an executor and has it open a GPU.
func (b *executors) launchSpare(gpu int) (*started, error) {
	s, err := b.launch(b.log)
	if err != nil {
		return nil, err
	}
	m, err := ipc.NewMessage(ipc.KindPrepare, ipc.Prepare{GPU: b.gpu(gpu)})
	if err == nil {
		err = s.conn.Send(m)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// makeAhead has a spare executor make a context, if the daemon lends it memory. An error means that the
// executor is of no use.
func (b *executors) makeAhead(ctx context.Context, sp *spare, s *started) error {
	sp.pid = s.cmd.Process.Pid
	shared := b.dev.Shared()
	if shared == nil || !b.borrow(ctx, sp) {
		return nil
	}
	m, err := ipc.NewMessage(ipc.KindAhead, ipc.Setup{
		Guest: b.spec.Name, GPU: b.gpu(sp.gpu), Header: b.header, Rings: sp.rings, MemoryLimit: b.spec.MemoryLimit,
		KernelTimeLimit: b.spec.KernelTimeLimit, Grows: true, Sealed: b.spec.Sandbox != nil,
	}, shared, b.pages[sp.gpu].File())
	if err == nil {
		err = s.conn.Send(m)
	}
	if err != nil {
		return err
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = s.conn.Expire() }) // Receive's error says it
	late := make(chan struct{})
	go func() {
		defer close(late)
		if clock.Sleep(limited, b.clock, readyLimit) == nil {
			_ = s.quit(limited, b.clock, b.log) // it ends then, one way or the other
			cancel()
		}
	}()
	m, err = s.conn.Receive()
	made := stop()
	cancel()
	<-late
	switch {
	case err != nil:
		return err
	case !made:
		return context.Canceled
	case m.Kind != ipc.KindAhead || len(m.Files) > 0:
		return errors.Join(fmt.Errorf("a spare executor sent %q with %d files, want %q", m.Kind, len(m.Files), ipc.KindAhead), m.CloseFiles())
	case m.Error != "":
		b.log.Debug("a spare executor has no context", "err", m.Error)
		b.repay(sp)
	}
	return nil
}

// borrow asks the daemon for a spare executor's memory on its GPU, and reports whether it is lent.
func (b *executors) borrow(ctx context.Context, sp *spare) bool {
	b.mu.Lock()
	sp.asks = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		sp.asks = false
		b.mu.Unlock()
	}()
	if !b.daemons.askSpare(sp.message()) {
		return false
	}
	timed, cancel := context.WithCancel(ctx)
	defer cancel()
	late := make(chan struct{})
	go func() {
		defer close(late)
		_ = clock.Sleep(timed, b.clock, lendLimit) // it ends the wait either way
	}()
	select {
	case lent := <-sp.answered:
		cancel()
		<-late
		return lent
	case <-late:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return sp.lent // it was at the last moment
}

// lend follows the daemon's word on a spare executor's memory. It does not wait.
func (b *executors) lend(l ipc.Lend) {
	b.mu.Lock()
	sp := b.spare
	if sp != nil && sp.number != l.Number {
		sp = nil
	}
	answers := sp != nil && sp.asks && !sp.lent
	if answers {
		sp.asks, sp.lent = false, l.Lent
		if l.Lent {
			b.daemons.addSpare(sp.message())
		}
		sp.answered <- l.Lent // once: asks is set once
	}
	recalled := !answers && sp != nil && sp.lent && !l.Lent
	if recalled {
		b.spare = nil
	}
	b.mu.Unlock()
	switch {
	case recalled:
		sp.cancel()
		if sp.s != nil { // else runSpare ends it
			b.ended.Go(func() {
				if err := b.endOf(sp, sp.s); err != nil {
					b.log.Debug("end a spare executor that is to make room", "err", err)
				}
			})
		}
	case !answers && l.Lent:
		b.daemons.refuseSpare(ipc.Spare{Number: l.Number}) // nobody waits for the answer any more
	}
}

// repay tells the daemon that a spare executor's memory is not lent any more: the executor has ended, or
// has become one of the guest's contexts.
func (b *executors) repay(sp *spare) {
	b.mu.Lock()
	lent := sp.lent
	sp.lent = false
	b.mu.Unlock()
	if lent {
		b.daemons.dropSpare(sp.message())
	}
}

// dropSpare forgets a spare executor, and reports whether it was the guest's until then.
func (b *executors) dropSpare(sp *spare) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spare != sp {
		return false
	}
	b.spare = nil
	return true
}

// takeSpare returns the guest's spare executor if it is of a GPU and can be used, which is the caller's
// then, or nil if there is none. One of another GPU is ended. One that makes its context just now is
// waited for until ctx ends: that is sooner there than another, for which there may be no memory beside
// it.
func (b *executors) takeSpare(ctx context.Context, gpu int) *spare {
	b.mu.Lock()
	sp := b.spare
	if sp != nil && sp.s == nil && sp.lent && sp.gpu == gpu {
		b.mu.Unlock()
		select {
		case <-sp.settled:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		sp = b.spare
	}
	b.spare = nil
	b.mu.Unlock()
	if sp == nil {
		return nil
	}
	sp.cancel()
	if sp.s == nil {
		return nil // it is about to be started: runSpare ends it
	}
	if gpu != ofAnyGPU && sp.gpu != gpu {
		// It takes as long as to close a context, on a GPU that the next one has nothing to do with.
		b.ended.Go(func() {
			if err := b.endOf(sp, sp.s); err != nil {
				b.log.Debug("end the spare executor of another GPU", "err", err)
			}
		})
		return nil
	}
	return sp
}

// endAhead ends the spare executor if it has a context ahead, or makes one, and returns when it can
// not touch BAR2 any more. The context would be of no use: the next client of the device has other
// shared memory. Another spare executor is started in its place.
func (b *executors) endAhead() {
	b.mu.Lock()
	sp := b.spare
	if sp == nil || !sp.asks && !sp.lent {
		b.mu.Unlock()
		return
	}
	b.spare = nil
	b.mu.Unlock()
	sp.cancel()
	<-sp.done
	if sp.s != nil {
		if err := b.endOf(sp, sp.s); err != nil {
			b.log.Debug("end the spare executor with the device's reset", "err", err)
		}
	}
	b.keepSpare(sp.gpu, sp.rings)
}

// lostGPU ends the spare executor if a context has ended with its GPU. The spare executor has opened
// that GPU, too: it would be of no use to the next context, and in the way of the GPU's reset.
func (b *executors) lostGPU(code abi.ErrorCode) {
	if code == abi.ErrorDeviceLost {
		b.endSpare()
	}
}

// endSpare ends the guest's spare executor, if it has one.
func (b *executors) endSpare() {
	sp := b.takeSpare(context.Background(), ofAnyGPU)
	if sp == nil {
		return
	}
	if err := b.endOf(sp, sp.s); err != nil {
		b.log.Debug("end the spare executor", "err", err)
	}
}

// setUpSpare sends the setup to the guest's spare executor. It returns nil if there is none, or if it
// has died.
func (p *process) setUpSpare(shared *os.File) (*started, error) {
	sp := p.b.takeSpare(p.ctx, p.gpu)
	if sp == nil {
		return nil, nil
	}
	st := sp.s
	st.output.With("context", p.ref.Slot)
	if err := p.setUp(st, shared); err != nil {
		p.b.log.Debug("the spare executor is of no use", "err", errors.Join(err, p.b.endOf(sp, st)))
		return nil, nil
	}
	p.b.repay(sp) // from now on the memory is the guest's
	return st, nil
}

// diedAsSpare reports whether an executor ended that was a spare one, without a word: it was killed, or
// its context does not fit. Another one is started in its place.
func (p *process) diedAsSpare(code abi.ErrorCode, err error) bool {
	return p.spare && code == abi.ErrorExecutorStart && errors.Is(err, io.EOF)
}

// askSpare asks the daemons for a spare executor's memory. It reports false if there is none.
func (c *control) askSpare(s ipc.Spare) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) == 0 {
		return false
	}
	c.broadcastBody(ipc.KindSpare, s)
	return true
}

// addSpare has later daemons know of a spare executor with memory that is lent.
func (c *control) addSpare(s ipc.Spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spares = append(c.spares, s)
}

// dropSpare tells the daemons that a spare executor's memory is not lent any more.
func (c *control) dropSpare(s ipc.Spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range c.spares {
		if o == s {
			c.spares = append(c.spares[:i:i], c.spares[i+1:]...)
			break
		}
	}
	c.broadcastBody(ipc.KindSpareGone, s)
}

// refuseSpare tells the daemons that a spare executor does not use what it was lent.
func (c *control) refuseSpare(s ipc.Spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.spares {
		if o.Number == s.Number {
			return // it ends, and that is told
		}
	}
	c.broadcastBody(ipc.KindSpareGone, s)
}

// handleLend follows the daemon's message about a spare executor's memory.
func (c *control) handleLend(m *ipc.Message) {
	var l ipc.Lend
	if err := m.Decode(&l); err != nil {
		c.log.Warn("a message of the daemon can't be read", "err", err)
		return
	}
	c.lend(l)
}
