package nvidia

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// interruptsAfterSleep is the number of commands after a sleep whose ends raise interrupts. An
// interrupt costs 30 µs of a processor's time on a virtual machine, and it delays the caller if
// that processor is polling for the end or queueing the next command.
const interruptsAfterSleep = 16

// signal queues the signals for the end of command f in slot i, which is the newest: an event and,
// unless byEvent is set, a store to the channel's word. The word costs nothing to poll, but the
// store is bad behind a copy: with it a copy up, a kernel and a copy down on each of two streams of
// an H100 take 1.27 ms a round, one after the other, and 0.73 ms without. The context is current,
// and the caller holds putting.
func (ch *Channel) signal(what string, i, f uint64, byEvent bool) error {
	end, waker, err := cuda.Event(0), cuda.Event(0), error(nil)
	if ch.interruptsLeft.Load() > 0 {
		ch.interruptsLeft.Add(-1)
		err = ch.record(&ch.wakers[i], cuda.EventBlockingSync)
		end, waker = ch.wakers[i], ch.wakers[i]
	} else {
		err = ch.record(&ch.ends[i], 0)
		end = ch.ends[i]
	}
	if err == nil {
		ch.mu.Lock()
		s := &ch.slots[i]
		s.end, s.waker, s.unsignalled, s.ahead, s.byEvent = end, waker, false, false, byEvent
		ch.mu.Unlock()
		// The word may reach f before the call returns.
		ch.tail.Store(uintptr(end))
		ch.last.Store(ch.base + f)
		ch.sent.Store(f)
		ch.signalled.Store(f)
		if byEvent {
			ch.byEvent.Store(f)
			return nil
		}
		err = ch.c.drv.StreamWriteValue64(ch.stream, address(ch.mem), ch.base+f)
	}
	if err == nil {
		return nil
	}
	if err := ch.c.failed(what, err); ch.c.fault.Load() != nil {
		return err
	}
	ch.c.poison(fmt.Errorf("%s: its end would not be signalled: %w: %w", what, meaning(err), gpu.ErrPoisoned))
	return ch.c.Fault()
}

// endUnsignalled is end for a command whose end a later one's signals tell. One is a command that is
// followed at once. The other is an urgent word copy: the calls that queue its signals take longer
// than the copy, and delay on the GPU what it is meant to stop.
func (ch *Channel) endUnsignalled(what string, i uint64, err error, ahead bool) (gpu.Fence, error) {
	defer ch.c.leave()
	defer ch.putting.Unlock()
	if err != nil {
		return 0, ch.c.failed(what, err)
	}
	f := ch.sent.Load() + 1
	ch.mu.Lock()
	ch.slots[i].unsignalled, ch.slots[i].ahead = true, ahead
	ch.mu.Unlock()
	ch.sent.Store(f)
	return gpu.Fence(f), nil
}

// endWord is end for a word copy.
func (ch *Channel) endWord(what string, i uint64, err error) (gpu.Fence, error) {
	ch.joins, ch.ahead = false, false
	return ch.endUnsignalled(what, i, err, false)
}

// signalAll queues the signals for all queued commands. It may have to wait until a command has
// been queued.
func (ch *Channel) signalAll() {
	if ch.signalled.Load() == ch.sent.Load() {
		return
	}
	ch.putting.Lock()
	defer ch.putting.Unlock()
	ch.signalNewest()
}

// trySignal is signalAll for a caller that will ask again and must not block. It does nothing while
// a command is being queued.
func (ch *Channel) trySignal() {
	if ch.signalled.Load() == ch.sent.Load() || !ch.putting.TryLock() {
		return
	}
	defer ch.putting.Unlock()
	ch.signalNewest()
}

// signalNewest queues the signals of the newest command if there are none yet. The caller holds
// putting.
func (ch *Channel) signalNewest() {
	f := ch.sent.Load()
	if ch.signalled.Load() == f || ch.dead.Load() || ch.c.fault.Load() != nil {
		return
	}
	if err := ch.c.enter(); err == nil {
		_ = ch.signal("tell of a word's end", f%slotCount, f, false) // an error has poisoned the context
	}
	ch.c.leave()
}

// writeWord has the GPU store to the word behind the newest command, if its event alone signals its
// end.
func (ch *Channel) writeWord() {
	ch.putting.Lock()
	defer ch.putting.Unlock()
	f := ch.sent.Load()
	if ch.progress() >= f || ch.byEvent.Load() != f || ch.dead.Load() || ch.c.fault.Load() != nil {
		return
	}
	_ = ch.c.do("tell of a copy's end", func() error { // an error has poisoned the context
		return ch.c.drv.StreamWriteValue64(ch.stream, address(ch.mem), ch.base+f)
	})
}

// progress returns the newest command that is known to be done. Where an event alone signals a
// command's end progress stores to the word in the GPU's place, once the event was reached.
func (ch *Channel) progress() uint64 {
	n := ch.word.Load() - ch.base
	for ch.byEvent.Load() > n && ch.c.fault.Load() == nil && !ch.dead.Load() {
		f, e := ch.nextByEvent(n)
		if f == 0 || !ch.passed(e) {
			break
		}
		n = ch.store(f)
	}
	return n
}

// nextByEvent returns the first command after n whose event alone signals its end, and the event;
// 0 if there is none.
func (ch *Channel) nextByEvent(n uint64) (uint64, cuda.Event) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for f, last := n+1, ch.byEvent.Load(); f <= last; f++ {
		if s := &ch.slots[f%slotCount]; s.fence == f && s.byEvent {
			return f, s.end
		}
	}
	return 0, 0
}

// passed reports whether the GPU has passed an event.
func (ch *Channel) passed(e cuda.Event) (passed bool) {
	err := ch.c.enter()
	if err == nil {
		passed, err = ch.c.drv.EventQuery(e)
	}
	ch.c.leave()
	if err != nil {
		_ = ch.c.checkFault(e) // which ends the context; its callers see that
		return false
	}
	return passed
}

// store stores to the word that the commands up to f are done, unless it says so already, and
// returns what it says. The GPU may store to it meanwhile.
func (ch *Channel) store(f uint64) uint64 {
	for {
		old := ch.word.Load()
		if n := old - ch.base; n >= f {
			return n
		}
		if ch.word.CompareAndSwap(old, ch.base+f) {
			return f
		}
	}
}

// nextSignalled returns the first command from f on that has an event. The caller holds mu.
func (ch *Channel) nextSignalled(f uint64) uint64 {
	for signalled := ch.signalled.Load(); f < signalled && ch.slots[f%slotCount].unsignalled; f++ {
	}
	return f
}

// Wait blocks until f is reached or ctx ends.
func (ch *Channel) Wait(ctx context.Context, f gpu.Fence) error {
	if f <= ch.Done() {
		return nil
	}
	if sent := ch.sent.Load(); uint64(f) > sent {
		return fmt.Errorf("wait for fence %d of %d: %w", f, sent, gpu.ErrNotFound)
	}
	if ch.spin > 0 {
		for until := time.Now().Add(ch.spin); time.Now().Before(until); runtime.Gosched() {
			if f <= ch.Done() {
				return nil
			}
		}
	}
	for since := time.Now(); f > ch.Done(); {
		woken := make(chan error, 1)
		go func() { woken <- ch.sleep(uint64(f), since) }()
		select {
		case err := <-woken:
			if err != nil && f > ch.Done() {
				return err
			}
		case <-ch.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sleep blocks until f is reached or can't be reached any more. It may return early. The caller has
// waited since then.
func (ch *Channel) sleep(f uint64, since time.Time) error {
	// The counter comes first: Close reads it after marking the context as closed.
	ch.c.asleep.Add(1)
	defer ch.c.asleep.Add(-1)
	e, i, err := ch.sleepEvent(f)
	if err != nil && ch.c.usable() != nil {
		return err
	}
	if err != nil || e == 0 {
		if ch.reached() < f && ch.c.fault.Load() == nil && !ch.dead.Load() {
			time.Sleep(pollInterval(time.Since(since)))
			return ch.c.checkFault(cuda.Event(ch.tail.Load()))
		}
		return nil
	}
	defer func() {
		ch.mu.Lock()
		ch.slots[i].sleepers--
		ch.sleeping.Add(-1)
		ch.mu.Unlock()
	}()
	if err := ch.c.await(func() error { return ch.c.drv.EventSynchronize(e) }); err != nil {
		return err
	}
	// The word is written right after the event.
	since = time.Now()
	for n := 0; ch.progress() < f && ch.c.fault.Load() == nil && !ch.dead.Load(); n++ {
		if n < 1000 {
			runtime.Gosched()
		} else {
			time.Sleep(pollInterval(time.Since(since))) // its context is off the GPU
		}
	}
	return nil
}

// checkFault detects a fault that has ended the commands before the event tail. Their word is never
// written then, and the driver reports the reason only to its callers. It does nothing for event 0.
func (c *Context) checkFault(tail cuda.Event) error {
	if tail == 0 {
		return nil
	}
	return c.await(func() error {
		_, err := c.drv.EventQuery(tail)
		return err
	})
}

// await calls f, which queries an event or waits for it. An error of f concerns the work before the
// event and not the call, and so ends the context. It need not be a known sticky error, as drivers
// add new ones.
func (c *Context) await(f func() error) error {
	err, asked := c.enter(), false
	if err == nil {
		asked, err = true, f()
	}
	c.leave()
	const what = "wait for a command"
	if err = c.failed(what, err); err == nil || !asked || c.over.Load() || c.fault.Load() != nil {
		return err
	}
	c.poison(fmt.Errorf("%w: %w", err, gpu.ErrPoisoned))
	return c.Fault()
}

// pollInterval returns the polling interval of a caller that has no event to sleep on and has
// waited for so long: for a kernel of a second, 20000 polls would take 2 % of a core.
func pollInterval(waited time.Duration) time.Duration {
	return min(max(waited/16, 50*time.Microsecond), time.Millisecond)
}

// sleepEvent returns an event to sleep on until f is reached, and the slot in which the sleeper is
// counted. If there is none, because nobody was expected to sleep, and nothing is queued after f,
// it records one. Otherwise it returns event 0 and counts no sleeper. It also returns event 0 if f
// is reached: awaitSlot may then have found the slot free for another command.
func (ch *Channel) sleepEvent(f uint64) (e cuda.Event, i uint64, err error) {
	ch.interruptsLeft.Store(interruptsAfterSleep)
	ch.mu.Lock()
	long := ch.slots[f%slotCount].fence != f
	f = ch.nextSignalled(f)
	i = f % slotCount
	s := &ch.slots[i]
	there := !long && !s.unsignalled && s.fence == f && ch.word.Load()-ch.base < f
	if there && s.waker != 0 {
		s.sleepers++
		ch.sleeping.Add(1)
		e = s.waker
	}
	ch.mu.Unlock()
	if !there || e != 0 || !ch.putting.TryLock() {
		return e, i, nil
	}
	defer ch.putting.Unlock()
	if f != ch.sent.Load() {
		return 0, 0, nil
	}
	if err := ch.c.do("wait for a command", func() error { return ch.record(&ch.wakers[i], cuda.EventBlockingSync) }); err != nil {
		return 0, 0, err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	s.waker = ch.wakers[i]
	s.sleepers++
	ch.sleeping.Add(1)
	return s.waker, i, nil
}
