package soft

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft/ring"
)

// channel is a channel as the program that has it sees it: launches go to the GPU through the ring, copies are done
// here, and both complete in the order in which they were queued. A launch behind a copy goes into the ring when the
// copy is done. A copy with nothing before it is done at once where it is small, and otherwise by the channel's copier,
// a goroutine that begins with the first copy that needs it.
type channel struct {
	c    *deviceContext
	id   uint32
	p    *ring.Producer
	spin time.Duration

	done atomic.Uint64 // newest fence reached
	dead atomic.Bool

	mu      sync.Mutex
	last    uint64 // newest fence queued
	barrier uint64 // newest copy queued
	slots   [gpu.OutcomesKept]slot
	copied  chan struct{} // closed, and replaced, when a copy ends
	copier  sync.WaitGroup
	work    chan struct{} // wakes the copier; nil before the first copy that needs it
	quit    context.CancelFunc
	users   int // inside Wait
	closing bool
	unmap   bool
}

// slot is a command that is queued, or its outcome.
type slot struct {
	fence uint64
	copy  func() // a copy; nil: a launch
	busy  bool   // the copier is at it, or has done it
	over  bool   // the copy is done
	entry ring.Entry
	seq   uint64 // in the ring; 0: not put yet
	end   ring.Outcome
}

// inline is the largest copy that is done at once.
const inline = 64 << 10

func newChannel(c *deviceContext, info ChannelInfo) (*channel, error) {
	p, err := ring.NewProducer(info.Ring, c.d.d.Kick)
	if err != nil {
		return nil, err
	}
	ch := &channel{c: c, id: info.ID, p: p, copied: make(chan struct{})}
	if runtime.NumCPU() > 1 {
		ch.spin = 50 * time.Microsecond
	}
	return ch, nil
}

// usable is the reason why nothing can be queued, if there is one.
func (ch *channel) usable() error {
	if ch.dead.Load() {
		return fmt.Errorf("channel is closed: %w", gpu.ErrLost)
	}
	return ch.c.check()
}

// Launch queues a kernel. If the channel is full it waits for the oldest command.
func (ch *channel) Launch(l *gpu.Launch) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	f, ok := l.Function.(*function)
	if !ok || f.m.c != ch.c {
		return 0, fmt.Errorf("launch a function of another context: %w", gpu.ErrInvalidLaunch)
	}
	if err := f.checkLaunch(l); err != nil {
		return 0, err
	}
	s, err := ch.slot()
	if err != nil {
		return 0, err
	}
	defer ch.mu.Unlock()
	s.copy = nil
	s.entry.Kernel, s.entry.Grid, s.entry.Block, s.entry.Shared = f.id, l.Grid, l.Block, l.SharedBytes
	s.entry.Params = append(s.entry.Params[:0], l.Params[:f.attr.ParamBytes]...)
	ch.last = s.fence
	if ch.done.Load() >= ch.barrier {
		ch.put(s)
	}
	return gpu.Fence(s.fence), nil
}

// slot takes the next command's slot and leaves mu locked if there is no error.
func (ch *channel) slot() (*slot, error) {
	ch.mu.Lock()
	for ch.last-ch.done.Load() >= gpu.OutcomesKept {
		ch.advance()
		oldest := ch.done.Load() + 1
		if ch.last-ch.done.Load() < gpu.OutcomesKept {
			break
		}
		ch.mu.Unlock()
		if err := ch.Wait(context.Background(), gpu.Fence(oldest)); err != nil {
			return nil, err
		}
		ch.mu.Lock()
	}
	if ch.closing {
		ch.mu.Unlock()
		return nil, fmt.Errorf("channel is closed: %w", gpu.ErrLost)
	}
	s := &ch.slots[(ch.last+1)%gpu.OutcomesKept]
	*s = slot{fence: ch.last + 1, entry: ring.Entry{Params: s.entry.Params}}
	return s, nil
}

// put puts a launch into the ring, which has room for as many as there are slots.
func (ch *channel) put(s *slot) {
	if s.seq == 0 {
		s.seq, _ = ch.p.Put(&s.entry)
	}
}

// advance finds out what has ended since. The caller holds mu.
func (ch *channel) advance() {
	for ch.done.Load() < ch.last {
		s := &ch.slots[(ch.done.Load()+1)%gpu.OutcomesKept]
		dead := ch.dead.Load() || ch.p.Dead()
		switch {
		case s.copy != nil && s.over, s.copy != nil && dead && !s.busy:
			if !s.over {
				s.end.Code = ring.Dropped
			}
		case s.copy != nil:
			return
		case s.seq != 0 && ch.p.Completed() >= s.seq:
			o, ok := ch.p.Outcome(s.seq)
			if !ok {
				o.Code = ring.Dropped
			}
			if o.Code == ring.Fault || o.Code == ring.Poisoned {
				ch.c.hurt.Store(true)
			}
			s.end = o
		case dead:
			s.end = ring.Outcome{Code: ring.Dropped}
		default:
			return
		}
		s.copy = nil
		ch.done.Store(s.fence)
	}
}

// release puts the launches that waited for a copy into the ring, up to the next copy. The caller holds mu.
func (ch *channel) release() {
	for f := ch.done.Load() + 1; f <= ch.last; f++ {
		s := &ch.slots[f%gpu.OutcomesKept]
		if s.copy != nil {
			return
		}
		ch.put(s)
	}
}

// Done is the newest fence reached.
func (ch *channel) Done() gpu.Fence {
	if ch.mu.TryLock() {
		if !ch.unmap {
			ch.advance()
		}
		ch.mu.Unlock()
	}
	return gpu.Fence(ch.done.Load())
}

// Outcome says what became of a command.
func (ch *channel) Outcome(f gpu.Fence) gpu.Outcome {
	ch.mu.Lock()
	s := ch.slots[uint64(f)%gpu.OutcomesKept]
	reached := uint64(f) <= ch.done.Load()
	ch.mu.Unlock()
	if !reached || s.fence != uint64(f) || f == 0 {
		return gpu.Outcome{Err: fmt.Errorf("outcome of fence %d: %w", f, gpu.ErrNotFound)}
	}
	return gpu.Outcome{Start: time.Duration(s.end.Start), End: time.Duration(s.end.End), Err: ch.outcomeError(s.end.Code)}
}

func (ch *channel) outcomeError(code ring.Code) error {
	switch code {
	case ring.OK:
		return nil
	case ring.Fault:
		return ch.c.Fault()
	case ring.Poisoned:
		return fmt.Errorf("launch dropped: %w", gpu.ErrPoisoned)
	case ring.NoMemory:
		return fmt.Errorf("launch refused: %w", gpu.ErrOutOfMemory)
	case ring.Unsupported:
		return fmt.Errorf("launch refused: %w", gpu.ErrUnsupported)
	case ring.BadLaunch:
		return fmt.Errorf("launch refused: %w", gpu.ErrInvalidLaunch)
	}
	return fmt.Errorf("command dropped: %w", gpu.ErrLost)
}

// Wait blocks until f is reached or ctx ends.
func (ch *channel) Wait(ctx context.Context, f gpu.Fence) error {
	if uint64(f) <= ch.done.Load() {
		return nil
	}
	ch.mu.Lock()
	if ch.unmap || uint64(f) > ch.last {
		defer ch.mu.Unlock()
		if uint64(f) <= ch.last {
			return fmt.Errorf("channel is closed: %w", gpu.ErrLost)
		}
		return fmt.Errorf("wait for fence %d of %d: %w", f, ch.last, gpu.ErrNotFound)
	}
	ch.users++
	defer ch.leave()
	for {
		// Holds mu.
		ch.advance()
		done := ch.done.Load()
		if uint64(f) <= done {
			ch.mu.Unlock()
			return nil
		}
		// All up to the next copy end in the ring; if that is next, the copier tells.
		var seq uint64
		for k := done + 1; k <= uint64(f); k++ {
			s := &ch.slots[k%gpu.OutcomesKept]
			if s.copy != nil || s.seq == 0 {
				break
			}
			seq = s.seq
		}
		copied := ch.copied
		ch.mu.Unlock()
		if seq != 0 {
			if err := ch.p.Wait(ctx, seq, ch.spin); err != nil {
				return err
			}
			if ch.p.Completed() < seq && ch.c.d.lost() != nil {
				ch.dead.Store(true) // the engine's process went without a word
			}
		} else {
			select {
			case <-copied:
			case <-ctx.Done():
				return ctx.Err()
			case <-ch.c.d.d.Lost():
				ch.dead.Store(true)
			}
		}
		ch.mu.Lock()
	}
}

// leave is a Wait's end. The last one out of a closed channel unmaps the ring.
func (ch *channel) leave() {
	ch.mu.Lock()
	ch.users--
	ch.mu.Unlock()
}

// CopyIn copies from the program's memory to the GPU's.
func (ch *channel) CopyIn(dst gpu.Ptr, src []byte) (gpu.Fence, error) {
	to, err := ch.c.bytes(dst, uint64(len(src)))
	if err != nil {
		return 0, fmt.Errorf("copy in: %w", err)
	}
	return ch.queueCopy(len(src), func() { copy(to, src) })
}

// CopyOut copies from the GPU's memory to the program's.
func (ch *channel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	from, err := ch.c.bytes(src, uint64(len(dst)))
	if err != nil {
		return 0, fmt.Errorf("copy out: %w", err)
	}
	return ch.queueCopy(len(dst), func() { copy(dst, from) })
}

// Copy copies within the GPU's memory.
func (ch *channel) Copy(dst, src gpu.Ptr, n uint64) (gpu.Fence, error) {
	to, err := ch.c.bytes(dst, n)
	if err != nil {
		return 0, fmt.Errorf("copy: %w", err)
	}
	from, err := ch.c.bytes(src, n)
	if err != nil {
		return 0, fmt.Errorf("copy: %w", err)
	}
	return ch.queueCopy(len(to), func() { copy(to, from) })
}

// Set fills n elements of width bytes.
func (ch *channel) Set(dst gpu.Ptr, value uint32, width int, n uint64) (gpu.Fence, error) {
	if width != 1 && width != 2 && width != 4 {
		return 0, fmt.Errorf("set elements of %d bytes: want 1, 2 or 4", width)
	}
	if n > 1<<60 || uint64(dst)%uint64(width) != 0 {
		return 0, fmt.Errorf("set %d elements of %d bytes at %#x: %w", n, width, uint64(dst), gpu.ErrInvalidPtr)
	}
	to, err := ch.c.bytes(dst, n*uint64(width))
	if err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	return ch.queueCopy(len(to), func() { fill(to, value, width) })
}

// fill writes value's low width bytes over and over, doubling what is there.
func fill(to []byte, value uint32, width int) {
	if len(to) == 0 {
		return
	}
	for i := range width {
		to[i] = byte(value >> (8 * i))
	}
	for n := width; n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

// queueCopy queues a copy of n bytes.
func (ch *channel) queueCopy(n int, do func()) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	s, err := ch.slot()
	if err != nil {
		return 0, err
	}
	defer ch.mu.Unlock()
	s.copy = do
	ch.last, ch.barrier = s.fence, s.fence
	ch.advance()
	if ch.done.Load() == s.fence-1 && n <= inline {
		s.end, s.busy, s.over = timed(do), true, true
		ch.advance()
		return gpu.Fence(s.fence), nil
	}
	if ch.work == nil {
		ctx, cancel := context.WithCancel(context.Background())
		ch.work, ch.quit = make(chan struct{}, 1), cancel
		ch.copier.Go(func() { ch.copyAll(ctx) })
	}
	select {
	case ch.work <- struct{}{}:
	default:
	}
	return gpu.Fence(s.fence), nil
}

// timed does a copy and says when.
func timed(do func()) ring.Outcome {
	start := clock.Real{}.Now()
	do()
	return ring.Outcome{Start: int64(start), End: int64(clock.Real{}.Now())}
}

// copyAll is the copier: it does the copies whose turn has come.
func (ch *channel) copyAll(ctx context.Context) {
	for {
		select {
		case <-ch.work:
		case <-ctx.Done():
			return
		}
		for ch.copyNext(ctx) {
		}
	}
}

// copyNext waits for the next copy's turn and does it. It reports false when there is none, or the channel ends.
func (ch *channel) copyNext(ctx context.Context) bool {
	ch.mu.Lock()
	ch.advance()
	done := ch.done.Load()
	next := done + 1
	for next <= ch.last && ch.slots[next%gpu.OutcomesKept].copy == nil {
		next++
	}
	if next > ch.last {
		ch.mu.Unlock()
		return false
	}
	if next > done+1 {
		ch.mu.Unlock()
		return ch.Wait(ctx, gpu.Fence(next-1)) == nil
	}
	s := &ch.slots[next%gpu.OutcomesKept]
	s.busy = true
	do := s.copy
	ch.mu.Unlock()
	end := ring.Outcome{Code: ring.Poisoned}
	if !ch.c.hurt.Load() {
		end = timed(do)
	}
	ch.mu.Lock()
	s.end, s.over = end, true
	ch.advance()
	ch.release()
	close(ch.copied)
	ch.copied = make(chan struct{})
	ch.mu.Unlock()
	return true
}

// Close drops what is queued. A launch that executes runs on, though nobody learns of its end.
func (ch *channel) Close() error {
	ch.mu.Lock()
	again := ch.closing
	ch.mu.Unlock()
	if again {
		return nil
	}
	err := ch.c.cd.CloseChannel(ch.id)
	if errors.Is(err, gpu.ErrLost) {
		err = nil // with all that it had
	}
	return errors.Join(err, ch.stop())
}

// stop ends the copier and all that wait, and gives the ring back. The engine has let go of it, or is gone.
func (ch *channel) stop() error {
	ch.mu.Lock()
	if ch.closing {
		ch.mu.Unlock()
		return nil
	}
	ch.closing = true
	ch.dead.Store(true)
	quit := ch.quit
	ch.mu.Unlock()
	if quit != nil {
		quit()
	}
	ch.copier.Wait()
	ch.c.mu.Lock()
	delete(ch.c.channels, ch)
	ch.c.mu.Unlock()
	for {
		ch.mu.Lock()
		ch.advance()
		if ch.users == 0 {
			ch.unmap = true
			ch.slots = [gpu.OutcomesKept]slot{}
			ch.mu.Unlock()
			return ch.p.Close()
		}
		close(ch.copied)
		ch.copied = make(chan struct{})
		ch.mu.Unlock()
		ch.p.Wake()
		runtime.Gosched()
	}
}
