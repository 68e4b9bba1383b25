package agent

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/vfio/vfiouser"
)

// waker raises an eventfd that a tenant shares. The tenant could fill the counter and clear
// O_NONBLOCK, so that a write blocks until somebody reads; no look beforehand excludes that. So a
// goroutine of the waker's own writes, while whoever raises goes on.
type waker struct {
	event *vfiouser.Eventfd
	asked chan struct{} // holds one
	ended chan struct{}
	err   error // the first one of a write; Close returns it
}

// newWaker returns a waker with a new eventfd. Close must be called to free it.
func newWaker() (*waker, error) {
	e, err := vfiouser.NewEventfd()
	if err != nil {
		return nil, err
	}
	w := &waker{event: e, asked: make(chan struct{}, 1), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

func (w *waker) run() {
	defer close(w.ended)
	for range w.asked {
		_, err := unix.Write(w.event.FD(), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if err != nil && err != unix.EAGAIN && w.err == nil { // a full counter is raised
			w.err = fmt.Errorf("raise a program's eventfd: %w", err)
		}
	}
}

// raise has the eventfd raised. It does not wait for that, and may not be called after Close.
func (w *waker) raise() {
	select {
	case w.asked <- struct{}{}:
	default: // a write is to come
	}
}

// drainInterval is how often a waker that is to end makes room in its eventfd for a write.
const drainInterval = 10 * time.Millisecond

// Close waits until a write that is under way has ended, and closes the eventfd.
func (w *waker) Close() error {
	close(w.asked)
	again := time.NewTicker(drainInterval)
	defer again.Stop()
	for {
		select {
		case <-w.ended:
			return errors.Join(w.err, w.event.Close())
		case <-again.C:
			// This does not block, whatever O_NONBLOCK is now. If it fails there is nothing to read,
			// or the kernel has no such reads, and the write ends when a program reads.
			var count [8]byte
			_, _ = unix.Preadv2(w.event.FD(), [][]byte{count[:]}, -1, unix.RWF_NOWAIT)
		}
	}
}
