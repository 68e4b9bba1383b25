package nvidia

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// Channel is a stream. It implements [gpu.Channel].
type Channel struct {
	c *Context
	*lane
	spin time.Duration

	base uint64        // the lane's word before the channel's first command
	seen atomic.Uint64 // fences reached, with their copies finished
	sent atomic.Uint64 // newest fence queued
	// signalled is the newest fence whose end the GPU will signal. It is less than sent after an
	// unsignalled word copy, whose signal is queued on demand or with the next command's.
	signalled atomic.Uint64
	// byEvent is the newest fence that the GPU signals by its event alone: see signal.
	byEvent atomic.Uint64
	putting sync.Mutex // held while a command or its end is queued
	// interruptsLeft is the number of further commands whose ends raise an interrupt, because a
	// caller is expected to sleep.
	interruptsLeft atomic.Int32
	// joins reports whether the next command may belong to a train, and ahead whether its end may be
	// told with a later one's.
	joins, ahead bool
	dead         atomic.Bool
	gone         chan struct{} // closed when the context is poisoned or the channel is closed
	once         sync.Once

	zeroed uint64 // progress of Context.zero that this channel has waited for

	sleeping atomic.Int32 // the sum of the slots' sleepers

	mu       sync.Mutex // guards slots, latest and lastPoll; not held while the driver is called
	slots    [slotCount]slot
	latest   ended
	train    train // the last one whose times were read
	lastPoll poll
	polledAt atomic.Int64 // when the word was last polled, on the host's clock
}

// poll is a poll, on the host's clock, that found the commands up to fence reached, and the time of
// the poll before it, which did not.
type poll struct {
	fence      uint64
	before, at time.Duration
}

// ended is the time at which a command ended, on the GPU's clock.
type ended struct {
	fence uint64
	at    time.Duration
}

// slot is the channel's record of one command.
type slot struct {
	fence  uint64
	kernel *Function
	began  beginning
	// called is the time at which the driver's call returned, converted from the host's
	// clock to the GPU's with an error of about 10 µs, or 0 if unknown. took is the time since the
	// event before the launch was recorded.
	called      time.Duration
	took        time.Duration
	dst, src    []byte // a copy out of page-locked memory, to be made when the command is done
	sleepers    int    // callers waiting for its waker, and for the word after it
	unsignalled bool   // it has no event; a later command's event signals its end
	byEvent     bool   // its event alone signals its end
	ahead       bool   // likewise, and the command after it belongs to the same train
	first       uint64 // the first command of its train, mostly itself
	end         cuda.Event
	waker       cuda.Event // an event that callers can sleep on; 0: none
}

// beginning is the source of a command's start time.
type beginning uint8

const (
	recorded beginning = iota // it has an event of its own
	behind                    // it started when the command before it ended, which was not done when it was queued
	inTrain                   // it started somewhere in its train's time
	unknown                   // only its end is known
)

// NewChannel returns a new channel, on the stream of a closed one if one is idle.
func (c *Context) NewChannel() (gpu.Channel, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	ch := &Channel{c: c, gone: make(chan struct{})}
	if runtime.NumCPU() > 1 {
		ch.spin = 50 * time.Microsecond
	}
	if ch.lane = c.idleLane(); ch.lane == nil {
		if err := c.do("new channel", func() (err error) {
			ch.lane, err = newLane(c.drv)
			return err
		}); err != nil {
			return nil, err
		}
	}
	ch.base = ch.word.Load()
	c.mu.Lock()
	c.channels = append(c.channels, ch)
	c.mu.Unlock()
	return ch, nil
}

// usable returns an error if nothing can be queued.
func (ch *Channel) usable() error {
	if err := ch.c.usable(); err != nil {
		return err
	}
	if ch.dead.Load() {
		return fmt.Errorf("channel is closed: %w", gpu.ErrLost)
	}
	return nil
}

// begin prepares the driver and the next command's slot. Fresh memory must have been zeroed up to
// zeroed before the command runs. The caller must call end afterwards, even after an error.
func (ch *Channel) begin(zeroed uint64) (i uint64, err error) { return ch.beginKernel(zeroed, nil) }

// beginKernel is begin for a launch of k, or for another command if k is nil.
func (ch *Channel) beginKernel(zeroed uint64, k *Function) (i uint64, err error) {
	if i, err = ch.enter(zeroed); err != nil {
		return i, err
	}
	// Only the holder of putting writes to what is read here.
	sent := ch.sent.Load()
	s := slot{fence: sent + 1, first: sent + 1, kernel: k, began: recorded}
	switch before := &ch.slots[sent%slotCount]; {
	case ch.joins && before.ahead && ch.signalled.Load() < sent:
		s.began, s.first = inTrain, before.first
	case ch.signalled.Load() == sent && ch.progress() < sent:
		s.began = behind
	}
	ch.fill(i, s)
	if s.began == inTrain {
		return i, nil
	}
	if err := ch.c.clock.tick(ch.c.d.o.Clock.Now()); err != nil {
		return i, err
	}
	if s.began == recorded {
		err = ch.record(&ch.starts[i], 0)
	}
	return i, err
}

// fill sets the record of a command that is about to be queued.
func (ch *Channel) fill(i uint64, s slot) {
	ch.mu.Lock()
	ch.slots[i] = s
	ch.mu.Unlock()
}

// Ahead implements [gpu.Train].
func (ch *Channel) Ahead(joins bool) { ch.joins, ch.ahead = true, joins }

// beginUntimed is begin for a command of which only the end time is kept.
func (ch *Channel) beginUntimed(zeroed uint64) (i uint64, err error) {
	if i, err = ch.enter(zeroed); err != nil {
		return i, err
	}
	if err := ch.c.clock.tick(ch.c.d.o.Clock.Now()); err != nil {
		return i, err
	}
	ch.fill(i, slot{fence: ch.sent.Load() + 1, began: unknown})
	return i, nil
}

// enter prepares the driver for the next command, whose slot it returns.
func (ch *Channel) enter(zeroed uint64) (i uint64, err error) {
	f := ch.sent.Load() + 1
	i = f % slotCount
	c := ch.c
	full := ch.awaitSlot(f)
	ch.putting.Lock()
	if err := c.enterPinned(); err != nil {
		return i, err
	}
	if full != nil {
		return i, full
	}
	if zeroed > ch.zeroed && c.zero.word.Load() < zeroed {
		upTo := c.zero.last.Load()
		if err := c.drv.StreamWaitEvent(ch.stream, cuda.Event(c.zero.tail.Load())); err != nil {
			return i, err
		}
		ch.zeroed = upTo
	}
	return i, nil
}

// record records an event after the commands queued so far and creates the event if necessary.
func (ch *Channel) record(e *cuda.Event, flags uint32) (err error) {
	if *e == 0 {
		if *e, err = ch.c.drv.EventCreate(flags); err != nil {
			return err
		}
	}
	return ch.c.drv.EventRecord(*e, ch.stream)
}

// awaitSlot waits until the command that had the slot of f is long done and no caller waits in the
// driver for that slot's event, which f will reuse.
func (ch *Channel) awaitSlot(f uint64) error {
	if f <= gpu.OutcomesKept {
		return nil
	}
	if long := f - gpu.OutcomesKept; ch.reached() < long {
		if err := ch.Wait(context.Background(), gpu.Fence(long)); err != nil {
			return err
		}
	}
	for i := f % slotCount; ch.sleeping.Load() > 0; runtime.Gosched() {
		ch.mu.Lock()
		n := ch.slots[i].sleepers
		ch.mu.Unlock()
		if n == 0 {
			break
		}
	}
	return ch.usable()
}

// end finishes the command that begin began; err is the driver's error for it. A command whose end
// can't be signalled is queued all the same, and poisons the context.
func (ch *Channel) end(what string, i uint64, err error) (gpu.Fence, error) {
	return ch.endBy(what, i, err, false)
}

// endCopy is end for a copy.
func (ch *Channel) endCopy(what string, i uint64, err error) (gpu.Fence, error) {
	return ch.endBy(what, i, err, true)
}

func (ch *Channel) endBy(what string, i uint64, err error, event bool) (gpu.Fence, error) {
	ahead := ch.ahead
	ch.joins, ch.ahead = false, false
	if ahead {
		return ch.endUnsignalled(what, i, err, true)
	}
	defer ch.c.leave()
	defer ch.putting.Unlock()
	if err != nil {
		return 0, ch.c.failed(what, err)
	}
	f := ch.sent.Load() + 1
	if err := ch.signal(what, i, f, event); err != nil {
		return 0, err
	}
	return gpu.Fence(f), nil
}

// Launch queues a kernel.
func (ch *Channel) Launch(l *gpu.Launch) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	f, ok := l.Function.(*Function)
	if !ok {
		return 0, fmt.Errorf("launch a function of another device: %w", gpu.ErrInvalidLaunch)
	}
	if err := f.check(ch.c, l); err != nil {
		return 0, err
	}
	i, err := ch.beginKernel(ch.c.zero.last.Load(), f)
	if err == nil {
		err = f.allow(l.SharedBytes)
	}
	timed := ch.timed(i)
	var from, then time.Duration
	if timed {
		from = ch.c.d.o.Clock.Now()
	}
	if err == nil {
		n := copy(ch.args.Params[:], l.Params[:f.attrs.ParamBytes])
		err = ch.c.drv.LaunchKernel(f.f, [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}, [3]uint32{l.Block.X, l.Block.Y, l.Block.Z},
			uint32(l.SharedBytes), ch.stream, ch.args, n)
		if err == cuda.ErrInvalidValue {
			err = fmt.Errorf("%w: %w", err, gpu.ErrInvalidLaunch)
		}
	}
	if timed {
		then = ch.c.d.o.Clock.Now()
		ch.mu.Lock()
		ch.slots[i].took = then - from
		ch.mu.Unlock()
	}
	fence, err := ch.end("launch", i, err)
	if err == nil && timed {
		// The GPU is at work already, so this costs the launch nothing.
		ch.called(i, then)
	}
	return fence, err
}

// timed reports whether the command in slot i, which is about to be queued, has times of its own, and
// not those of the train that it continues. Only the goroutine that queues commands may call it.
func (ch *Channel) timed(i uint64) bool { return ch.slots[i].began != inTrain }

// called records that the call for the command in slot i returned at then, on the host's clock.
func (ch *Channel) called(i uint64, then time.Duration) {
	now, err := ch.c.was(then)
	if err != nil {
		return // the event times have to do
	}
	ch.mu.Lock()
	ch.slots[i].called = now
	ch.mu.Unlock()
}

// Done returns the newest fence reached. In a context that a fault has ended, all fences are.
func (ch *Channel) Done() gpu.Fence {
	ch.trySignal()
	n := ch.reached()
	if ch.c.fault.Load() != nil || ch.dead.Load() {
		return gpu.Fence(ch.sent.Load())
	}
	return gpu.Fence(n)
}

// reached returns the newest fence whose end was signalled.
func (ch *Channel) reached() uint64 {
	n, seen := ch.progress(), ch.seen.Load()
	if seen == ch.signalled.Load() {
		return n
	}
	now := ch.c.d.o.Clock.Now()
	before := ch.polledAt.Swap(int64(now))
	if n > seen {
		ch.finishCopies(n, poll{n, time.Duration(before), now})
		ch.c.settleFrees()
	}
	return n
}

// finishCopies makes the copies from the cells of the commands up to n.
func (ch *Channel) finishCopies(n uint64, s poll) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.dead.Load() {
		return
	}
	for f := ch.seen.Load() + 1; f <= n; f++ {
		i := f % slotCount
		if s := &ch.slots[i]; s.fence == f && s.dst != nil {
			copy(s.dst, s.src)
			s.dst, s.src = nil, nil
		}
	}
	if n > ch.seen.Load() {
		ch.seen.Store(n)
		ch.lastPoll = s
	}
}

// awaited returns the next command to be done, as far as signals show it. Word copies without a
// signal count as done with the command after them. The caller holds mu.
func (ch *Channel) awaited() uint64 {
	f := ch.word.Load() - ch.base + 1
	for sent := ch.sent.Load(); f < sent && ch.slots[f%slotCount].fence == f && ch.slots[f%slotCount].unsignalled; f++ {
	}
	return f
}

// executing returns the next command to be done and the name of its kernel, or "" if there is none.
func (ch *Channel) executing() (f uint64, kernel string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	f = ch.awaited()
	if s := &ch.slots[f%slotCount]; f <= ch.sent.Load() && s.fence == f && s.kernel != nil {
		kernel = s.kernel.attrs.Name
	}
	return f, kernel
}

// wake ends all waits: their fences will never be reached.
func (ch *Channel) wake() { ch.once.Do(func() { close(ch.gone) }) }

// drop abandons the channel's commands: from now on only the GPU itself writes to the program's
// memory. It reports whether this call was the first.
func (ch *Channel) drop() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.dead.CompareAndSwap(false, true) {
		return false
	}
	ch.wake()
	return true
}

// Close releases the channel. Queued commands go on, and their outcomes are lost.
func (ch *Channel) Close() error {
	ch.signalAll() // the lane's next channel has to know when it is idle
	ch.writeWord()
	if !ch.drop() {
		return nil
	}
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	ch.c.channels = slices.DeleteFunc(ch.c.channels, func(o *Channel) bool { return o == ch })
	ch.c.idle = append(ch.c.idle, ch.lane)
	return nil
}
