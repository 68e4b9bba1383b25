package ipc

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
)

// bell is a word that one sleeps on and anybody rings.
type bell struct {
	rung     atomic.Uint32
	sleeping atomic.Uint32
}

// ring wakes who sleeps, or keeps it from going to sleep where it is about to.
func (b *bell) ring() {
	b.rung.Add(1)
	if b.sleeping.Load() != 0 {
		futex.Wake(&b.rung)
	}
}

// sleep blocks the calling thread until the bell is rung after the reading, or
// for at most d. Whoever has the page can wake it without a ring, as often as they
// like: it returns then, and its caller sees that there is nothing new.
func (b *bell) sleep(reading uint32, d time.Duration) error {
	b.sleeping.Store(1)
	defer b.sleeping.Store(0)
	for b.rung.Load() == reading {
		err := futex.Wait(&b.rung, reading, d)
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

// Ring wakes the context's executor, or keeps it from going to sleep where it
// is about to. Anybody may ring; it costs a system call only where the executor
// sleeps.
func (c *ContextSlot) Ring() { c.bell.ring() }

// Bell is a reading of the bell, to be taken before looking for work.
func (c *ContextSlot) Bell() uint32 { return c.bell.rung.Load() }

// Sleep blocks the calling thread until the bell is rung after the reading, or
// for at most d. The executor alone calls it.
func (c *ContextSlot) Sleep(reading uint32, d time.Duration) error { return c.bell.sleep(reading, d) }

// RingServe tells the daemon that a launch arrived, left the GPU or ended. On a
// page of version 1 there is nobody to tell.
func (p *Page) RingServe() {
	if p.area != nil {
		p.area.bell.ring()
	}
}

// Bell is a reading of the daemon's bell, to be taken before looking at stubs.
func (p *Page) Bell() uint32 {
	if p.area == nil {
		return 0
	}
	return p.area.bell.rung.Load()
}

// SleepBell blocks the calling thread until the daemon's bell is rung after the
// reading, or for at most d; at once, with [ErrNoStubs], on a page of
// version 1. One goroutine of the daemon calls it.
func (p *Page) SleepBell(reading uint32, d time.Duration) error {
	if p.area == nil {
		return ErrNoStubs
	}
	return p.area.bell.sleep(reading, d)
}
