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

// channel is a channel in the program that uses it. Launches go to the GPU through the ring, copies
// are done here, and both complete in the order in which they were queued. A launch behind a copy
// is put into the ring when the copy is done. A small copy with nothing before it is done at once;
// others are done by the channel's copier, a goroutine that starts with the first copy that needs
// it.
type channel struct {
	c    *deviceContext
	id   uint32
	p    *ring.Producer
	spin time.Duration

	done atomic.Uint64 // the newest completed fence
	dead atomic.Bool

	mu      sync.Mutex
	last    uint64 // the newest queued fence
	barrier uint64 // the fence of the newest queued copy
	slots   [gpu.OutcomesKept]slot
	copied  chan struct{} // closed and replaced when a copy ends
	copier  sync.WaitGroup
	work    chan struct{} // wakes the copier; nil before the first copy that needs it
	quit    context.CancelFunc
	users   int // goroutines inside Wait
	closing bool
	unmap   bool
}

// slot is a queued command, or its outcome.
type slot struct {
	fence uint64
	copy  func() // a copy, or nil for a launch
	busy  bool   // the copier is doing it, or has done it
	over  bool   // the copy is done
	entry ring.Entry
	seq   uint64 // sequence number in the ring; 0 if it is not there yet
	end   ring.Outcome
}

// inline is the size of the largest copy that is done at once.
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

// usable returns an error if nothing can be queued.
func (ch *channel) usable() error {
	if ch.dead.Load() {
		return fmt.Errorf("channel is closed: %w", gpu.ErrLost)
	}
	return ch.c.check()
}

// Launch queues a kernel. If the channel is full, it waits for the oldest command.
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

// slot returns the slot of the next command. If there is no error, it leaves mu locked.
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

// put puts a launch into the ring, which has room for as many launches as there are slots.
func (ch *channel) put(s *slot) {
	if s.seq == 0 {
		s.seq, _ = ch.p.Put(&s.entry)
	}
}

// advance completes the commands that have ended since the last call. The caller holds mu.
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
				ch.c.faulted.Store(true)
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

// release puts the launches that waited for a copy into the ring, up to the next copy. The caller
// holds mu.
func (ch *channel) release() {
	for f := ch.done.Load() + 1; f <= ch.last; f++ {
		s := &ch.slots[f%gpu.OutcomesKept]
		if s.copy != nil {
			return
		}
		ch.put(s)
	}
}

// Done returns the newest completed fence.
func (ch *channel) Done() gpu.Fence {
	if ch.mu.TryLock() {
		if !ch.unmap {
			ch.advance()
		}
		ch.mu.Unlock()
	}
	return gpu.Fence(ch.done.Load())
}

// Outcome returns the result of a command.
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

// Wait waits until f is reached or ctx ends.
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
		// mu is held here.
		ch.advance()
		done := ch.done.Load()
		if uint64(f) <= done {
			ch.mu.Unlock()
			return nil
		}
		// Everything before the next copy ends in the ring. If a copy is next, the copier signals
		// its end.
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
				ch.dead.Store(true) // the engine's process ended without closing the ring
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

// leave ends a Wait. The last Wait of a closed channel unmaps the ring.
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

// fill fills b with value's low width bytes, by doubling what has been written.
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

// timed performs a copy and records its times.
func timed(do func()) ring.Outcome {
	start := clock.Real{}.Now()
	do()
	return ring.Outcome{Start: int64(start), End: int64(clock.Real{}.Now())}
}

// copyAll is the copier: it performs the copies whose turn has come.
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

// copyNext waits for the turn of the next copy and performs it. It returns false if there is none,
// or when the channel ends.
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
	if !ch.c.faulted.Load() {
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

// Close drops queued commands. A launch that executes runs on, but its end is not reported.
func (ch *channel) Close() error {
	ch.mu.Lock()
	again := ch.closing
	ch.mu.Unlock()
	if again {
		return nil
	}
	err := ch.c.cd.CloseChannel(ch.id)
	if errors.Is(err, gpu.ErrLost) {
		err = nil // and its resources with it
	}
	return errors.Join(err, ch.stop())
}

// stop ends the copier and all waits, and unmaps the ring. The engine no longer uses the ring, or
// is gone.
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
