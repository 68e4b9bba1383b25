package nvidia

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// drowsyFor is for how many commands after a sleep the ends raise interrupts. An interrupt takes 30 µs of a CPU on a virtual
// machine. If that CPU runs the thread that polls for the end or queues the next command, that thread waits for it.
const drowsyFor = 16

// tell queues the report of the end of command f, the newest, in slot i.
// Preconditions: the context is current, and putting is held.
func (ch *Channel) tell(what string, i, f uint64) error {
	end, waker, err := cuda.Event(0), cuda.Event(0), error(nil)
	if ch.drowsy.Load() > 0 {
		ch.drowsy.Add(-1)
		err = ch.record(&ch.wakers[i], cuda.EventBlockingSync)
		end, waker = ch.wakers[i], ch.wakers[i]
	} else {
		err = ch.record(&ch.ends[i], 0)
		end = ch.ends[i]
	}
	if err == nil {
		ch.mu.Lock()
		s := &ch.slots[i]
		s.end, s.waker, s.untold = end, waker, false
		ch.mu.Unlock()
		// The word may come to f before the call returns.
		ch.tail.Store(uintptr(end))
		ch.last.Store(ch.base + f)
		ch.sent.Store(f)
		ch.told.Store(f)
		err = ch.c.drv.StreamWriteValue64(ch.stream, address(ch.mem), ch.base+f)
	}
	if err == nil {
		return nil
	}
	if err := ch.c.failed(what, err); ch.c.fault.Load() != nil {
		return err
	}
	ch.c.poison(fmt.Errorf("%s: its end would not be told: %w: %w", what, meaning(err), gpu.ErrPoisoned))
	return ch.c.Fault()
}

// endUntold is end for a word, which must not wait: the calls that report its end take longer than its own call, and delay on the
// GPU the kernel that the word is to stop.
func (ch *Channel) endUntold(what string, i uint64, err error) (gpu.Fence, error) {
	defer ch.c.leave()
	defer ch.putting.Unlock()
	if err != nil {
		return 0, ch.c.failed(what, err)
	}
	f := ch.sent.Load() + 1
	ch.mu.Lock()
	ch.slots[i].untold = true
	ch.mu.Unlock()
	ch.sent.Store(f)
	return gpu.Fence(f), nil
}

// tellAll queues reports of the ends of all queued commands. It may block while another command is being queued.
func (ch *Channel) tellAll() {
	if ch.told.Load() == ch.sent.Load() {
		return
	}
	ch.putting.Lock()
	defer ch.putting.Unlock()
	ch.tellRest()
}

// nudge is tellAll for callers that ask again and must not block. It does nothing while a command is being queued.
func (ch *Channel) nudge() {
	if ch.told.Load() == ch.sent.Load() || !ch.putting.TryLock() {
		return
	}
	defer ch.putting.Unlock()
	ch.tellRest()
}

// tellRest queues a report of the end of the newest command if there is none.
// Preconditions: putting is held.
func (ch *Channel) tellRest() {
	f := ch.sent.Load()
	if ch.told.Load() == f || ch.dead.Load() || ch.c.fault.Load() != nil {
		return
	}
	if err := ch.c.enter(); err == nil {
		_ = ch.tell("tell of a word's end", f%slotCount, f) // an error has poisoned the context
	}
	ch.c.leave()
}

// teller returns the first command from f on that has an event.
// Preconditions: mu is held.
func (ch *Channel) teller(f uint64) uint64 {
	for told := ch.told.Load(); f < told && ch.slots[f%slotCount].untold; f++ {
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

// sleep waits for f in the driver, and may return before f is reached. The caller has waited for f since then.
func (ch *Channel) sleep(f uint64, since time.Time) error {
	// Before the context is looked at: Close looks here once that is over.
	ch.c.asleep.Add(1)
	defer ch.c.asleep.Add(-1)
	e, i, err := ch.alarm(f)
	if err != nil && ch.c.usable() != nil {
		return err
	}
	if err != nil || e == 0 {
		if ch.reached() < f && ch.c.fault.Load() == nil && !ch.dead.Load() {
			time.Sleep(nap(time.Since(since)))
			return ch.c.heed(cuda.Event(ch.tail.Load()))
		}
		return nil
	}
	defer func() {
		ch.mu.Lock()
		ch.slots[i].sleepers--
		ch.mu.Unlock()
	}()
	if err := ch.c.await(func() error { return ch.c.drv.EventSynchronize(e) }); err != nil {
		return err
	}
	// The word comes right behind the event.
	since = time.Now()
	for n := 0; ch.word.Load()-ch.base < f && ch.c.fault.Load() == nil && !ch.dead.Load(); n++ {
		if n < 1000 {
			runtime.Gosched()
		} else {
			time.Sleep(nap(time.Since(since))) // its context is off the GPU
		}
	}
	return nil
}

// heed finds a fault that ended what came before the event: its word is never written then, and the driver reports the fault only
// to a caller. Event 0 is none.
func (c *Context) heed(tail cuda.Event) error {
	if tail == 0 {
		return nil
	}
	return c.await(func() error {
		_, err := c.drv.EventQuery(tail)
		return err
	})
}

// await calls f, which queries an event or waits for it. Any error of f is of what came before the event, not of the call. It need
// not be one that is known to end contexts, because drivers add new ones.
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

// nap returns how long a waiter without an event sleeps at a time after it has waited for so long. For a kernel of a second,
// 20000 polls would be 2 % of a core.
func nap(waited time.Duration) time.Duration {
	return min(max(waited/16, 50*time.Microsecond), time.Millisecond)
}

// alarm returns an event to sleep on until f is reached, and the slot in which the sleeper is counted. If there is none, because
// nobody was expected to sleep, it makes one, provided that nothing is queued behind f yet. It returns 0 otherwise, and if f is
// reached, so that nobody is counted in a slot that is free for another command.
func (ch *Channel) alarm(f uint64) (e cuda.Event, i uint64, err error) {
	ch.drowsy.Store(drowsyFor)
	ch.mu.Lock()
	long := ch.slots[f%slotCount].fence != f
	f = ch.teller(f)
	i = f % slotCount
	s := &ch.slots[i]
	there := !long && !s.untold && s.fence == f && ch.word.Load()-ch.base < f
	if there && s.waker != 0 {
		s.sleepers++
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
	return s.waker, i, nil
}
