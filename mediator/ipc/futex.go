package ipc

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
)

// futexWord is a word that one thread sleeps on and any process changes to wake it.
type futexWord struct {
	changes  atomic.Uint32
	sleeping atomic.Uint32
}

// wake wakes the sleeping thread, or keeps it from sleeping if it is about to.
func (w *futexWord) wake() {
	w.changes.Add(1)
	if w.sleeping.Load() != 0 {
		futex.Wake(&w.changes)
	}
}

// sleep blocks the calling thread until the word is not value any more, for at most d. Any process
// that maps the page can end the sleep without a change, as often as it likes; then sleep returns,
// and its caller sees that nothing is new.
func (w *futexWord) sleep(value uint32, d time.Duration) error {
	w.sleeping.Store(1)
	defer w.sleeping.Store(0)
	for w.changes.Load() == value {
		err := futex.Wait(&w.changes, value, d)
		switch {
		case err == nil, errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		default:
			return err
		}
	}
	return nil
}

// Wake wakes the context's executor, or keeps it from sleeping if it is about to. Any process may
// call it. It makes a system call only while the executor sleeps.
func (c *ContextSlot) Wake() { c.futex.wake() }

// Futex returns the value of the futex that the executor sleeps on. The executor reads it before it
// looks for work.
func (c *ContextSlot) Futex() uint32 { return c.futex.changes.Load() }

// Sleep blocks the calling thread until the futex is not value any more, for at most d. Only the
// executor calls it.
func (c *ContextSlot) Sleep(value uint32, d time.Duration) error { return c.futex.sleep(value, d) }

// WakeDaemon tells the daemon that a launch arrived, left the GPU or ended. A page of version 1 has
// no futex for that.
func (p *ControlPage) WakeDaemon() {
	if p.launches != nil {
		p.launches.futex.wake()
	}
}

// DaemonFutex returns the value of the futex that the daemon sleeps on. The daemon reads it before
// it looks at launch slots.
func (p *ControlPage) DaemonFutex() uint32 {
	if p.launches == nil {
		return 0
	}
	return p.launches.futex.changes.Load()
}

// DaemonSleep blocks the calling thread until the daemon's futex is not value any more, for at most
// d. On a page of version 1 it returns [ErrNoLaunchSlots] at once. One goroutine of the daemon
// calls it.
func (p *ControlPage) DaemonSleep(value uint32, d time.Duration) error {
	if p.launches == nil {
		return ErrNoLaunchSlots
	}
	return p.launches.futex.sleep(value, d)
}
