package link

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Ring wakes the context's executor, or keeps it from going to sleep where it
// is about to. Anybody may ring; it costs a system call only where the executor
// sleeps.
func (c *ContextSlot) Ring() {
	c.bell.Add(1)
	if c.sleeping.Load() != 0 {
		futexWake(&c.bell)
	}
}

// Bell is a reading of the bell, to be taken before looking for work.
func (c *ContextSlot) Bell() uint32 { return c.bell.Load() }

// Sleep blocks the calling thread until the bell is rung after the reading, or
// for at most d. The executor alone calls it.
func (c *ContextSlot) Sleep(reading uint32, d time.Duration) error {
	c.sleeping.Store(1)
	defer c.sleeping.Store(0)
	for c.bell.Load() == reading {
		err := futexWait(&c.bell, reading, d)
		switch {
		case errors.Is(err, unix.ETIMEDOUT):
			return nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), err == nil:
		default:
			return err
		}
	}
	return nil
}
