package cuda

import (
	"errors"
	"sync"
	"time"
)

// Call is a thread's call of a function. Each thread has one, which its calls use one after the
// other.
type Call struct {
	d *Driver
	t *Thread
	// perThread says that the call is of the form in which stream 0 is the thread's own.
	perThread bool
	// resume is what is left of a call that returned [again].
	resume func() Result
	launch launchBuffer
	// captureMode is the thread's: which calls captures forbid.
	captureMode uint32
	timer       slicer
}

// threads has the Call of each thread by its number.
type threads struct {
	mu  sync.RWMutex
	all []*Call
}

func (d *Driver) thread(t *Thread) *Call {
	d.threads.mu.RLock()
	var c *Call
	if int(t.ID) < len(d.threads.all) {
		c = d.threads.all[t.ID]
	}
	d.threads.mu.RUnlock()
	if c == nil {
		d.threads.mu.Lock()
		for int(t.ID) >= len(d.threads.all) {
			d.threads.all = append(d.threads.all, nil)
		}
		if c = d.threads.all[t.ID]; c == nil {
			c = &Call{d: d}
			d.threads.all[t.ID] = c
		}
		d.threads.mu.Unlock()
	}
	c.t = t
	return c
}

// Again goes on with the call that this thread made before, which returned that it was to be gone on
// with.
func (d *Driver) Again(t *Thread) Result {
	c := d.thread(t)
	f := c.resume
	c.resume = nil
	if f == nil {
		return ErrorUnknown
	}
	return f()
}

// later has the call go on with f after the thread has had its signals.
func (c *Call) later(f func() Result) Result {
	c.resume = f
	return again
}

// waitSlice is how long a thread waits without its signals.
const waitSlice = 20 * time.Millisecond

// errSlice ends a wait after waitSlice.
var errSlice = errors.New("the thread is to have its signals")

// slicer is a context.Context that ends waitSlice after a wait began. It costs nothing where
// nothing waits: the timer is started when Done is first called.
type slicer struct {
	mu    sync.Mutex
	done  chan struct{}
	ended bool
}

// slice returns a context for waits of this call. The one before must not be in use any more.
func (c *Call) slice() *slicer {
	c.timer.mu.Lock()
	defer c.timer.mu.Unlock()
	if c.timer.done != nil { // it was used; its timer may be running
		c.timer.done, c.timer.ended = nil, false
	}
	return &c.timer
}

func (s *slicer) Deadline() (time.Time, bool) { return time.Time{}, false }

func (s *slicer) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		done := make(chan struct{})
		s.done = done
		time.AfterFunc(waitSlice, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.done == done {
				s.ended = true
			}
			close(done)
		})
	}
	return s.done
}

func (s *slicer) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errSlice
	}
	return nil
}

func (s *slicer) Value(any) any { return nil }
