package suspend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// Options are a controller's options. All fields but Leftover must be set.
type Options struct {
	// Guest is the guest's name.
	Guest string
	// Page is the guest's control page, which must stay open until Close has returned.
	Page    *ipc.ControlPage
	Intents *Intents
	// Leftover are the slots of contexts that an earlier daemon may have left disabled. They are
	// enabled as soon as their handles come, whatever the desired state.
	Leftover []int
	// DefaultSlice is the driver's time slice.
	DefaultSlice time.Duration
	Clock        clock.Clock
	Log          *slog.Logger
}

// Controller applies the desired state to one guest's contexts. Its methods may be called from any
// goroutine.
type Controller struct {
	o       Options
	done    chan struct{}
	settled chan struct{}
	settle  sync.Once

	mu       sync.Mutex // guards the fields below, up to closeErr
	desired  DesiredState
	arrivals []arrival
	invalid  bool // Invalidate was called
	state    State
	// running reports whether there is a goroutine, which ends when there is nothing more to do.
	// changed reports whether there is something new for it; endWait ends its wait for that.
	running    bool
	changed    bool
	endWait    context.CancelFunc
	closing    bool  // Close was called
	guestEnded bool  // Close's argument
	closeErr   error // written before done is closed

	// These belong to the goroutine, and to the next one once it has ended.
	contexts map[int]*contextState
	applied  DesiredState // what was desired when it was last applied
}

// arrival is a context's control that came, or nil for a context that is gone.
type arrival struct {
	slot    int
	control gpu.Control
}

// State is the state of a guest's contexts, with sums of what the controller has done.
type State struct {
	// Controlled is how many contexts can be controlled, and Disabled how many are or may be off
	// the GPU.
	Controlled, Disabled int
	// Leftover is how many of the disabled contexts are to be enabled whatever the desired state:
	// those of [Options].Leftover, those that a failed call may have disabled, and those that their
	// executors may have enabled.
	Leftover int
	// Disables and Enables count successful calls, and DisableTime and EnableTime are how long
	// these took. DisabledTime is for how long contexts that are enabled again were off.
	Disables, Enables                     uint64
	DisableTime, EnableTime, DisabledTime time.Duration
	// Slices counts time slices that were set. Slice is the desired one, 0 for the driver's own.
	Slices uint64
	Slice  time.Duration
	// Errors counts failed calls. Problem is the last failure, or "" if a call has succeeded since.
	Errors  uint64
	Problem string
}

// New starts a controller. Close must be called.
func New(o Options) *Controller {
	c := &Controller{o: o, done: make(chan struct{}), settled: make(chan struct{}), contexts: make(map[int]*contextState)}
	now := o.Clock.Now()
	for _, slot := range o.Leftover {
		c.contexts[slot] = &contextState{c: c, slot: slot, disabled: true, mustEnable: true, maybeEnabled: true, disabledSince: now}
	}
	c.count(&c.state)
	c.settleIfDone()
	if len(o.Leftover) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notify()
	}
	return c
}

// Settled returns a channel that is closed once all of [Options].Leftover are enabled or gone.
func (c *Controller) Settled() <-chan struct{} { return c.settled }

// SetDesired sets the desired state of the guest's contexts.
func (c *Controller) SetDesired(w DesiredState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w == c.desired || c.closing {
		return
	}
	c.desired = w
	c.state.Slice = w.Slice
	c.notify()
}

// SetControl takes over the control of a context whose handles have come. A nil control is for a
// context that is gone.
func (c *Controller) SetControl(slot int, control gpu.Control) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		if control == nil {
			return nil
		}
		return control.Close()
	}
	err := c.arrive(slot, control)
	c.notify()
	return err
}

// arrive adds an arrival for the goroutine, and closes a control of the slot that the goroutine has not
// taken up. A guest's process may send handles much faster than the driver's calls return, and each holds
// descriptors of the daemon's. So a slot has two arrivals at most: that its context is gone, and the
// newest control. Preconditions: mu is held.
func (c *Controller) arrive(slot int, control gpu.Control) (err error) {
	gone := false
	c.arrivals = slices.DeleteFunc(c.arrivals, func(a arrival) bool {
		switch {
		case a.slot != slot:
			return false
		case a.control == nil:
			gone = true
			return false
		}
		err = a.control.Close()
		return true
	})
	if control != nil || !gone {
		c.arrivals = append(c.arrivals, arrival{slot, control})
	}
	return err
}

// Invalidate says that the daemon was silent for so long that executors may have enabled their
// contexts and restored their time slices. The controller relies on nothing that it did: it undoes
// everything, perhaps once too often, and then does it again.
func (c *Controller) Invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.invalid = true
	c.notify()
}

// Refused records why a context can't be controlled.
func (c *Controller) Refused(slot int, err error) { c.failed(slot, err) }

// State returns the present state.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Close undoes everything and stops the controller; ended reports whether the guest's process has
// ended. The error is of what could not be undone.
func (c *Controller) Close(ended bool) error {
	c.mu.Lock()
	if !c.closing {
		c.closing, c.guestEnded = true, ended
		c.notify()
	}
	c.mu.Unlock()
	<-c.done
	return c.closeErr
}

// notify wakes the goroutine, or starts one. Preconditions: mu is held.
func (c *Controller) notify() {
	c.changed = true
	switch {
	case !c.running:
		c.running = true
		go c.run()
	case c.endWait != nil:
		c.endWait()
	}
}

// run applies the desired state to the driver until there is nothing more to do, or Close.
func (c *Controller) run() {
	for again := true; again; {
		c.mu.Lock()
		arrivals, invalid, closing := c.arrivals, c.invalid, c.closing
		desired := c.desired
		c.arrivals, c.invalid, c.changed, c.endWait = nil, false, false, nil
		c.mu.Unlock()
		c.applyArrivals(arrivals)
		if invalid {
			c.invalidateAll()
		}
		if closing {
			c.closeErr = c.release()
			c.settle.Do(func() { close(c.settled) })
			close(c.done)
			return
		}
		changed := desired != c.applied
		c.applied = desired
		at := c.apply(desired, changed)
		c.settleIfDone()
		again = c.await(at)
	}
}

// settleIfDone closes settled if nothing is left of [Options].Leftover.
func (c *Controller) settleIfDone() {
	if c.State().Leftover == 0 {
		c.settle.Do(func() { close(c.settled) })
	}
}

// await waits until there is news, or until at; 0 is never. It reports whether the goroutine goes on:
// without news, and nothing to do later, it ends.
func (c *Controller) await(at time.Duration) bool {
	wait, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.mu.Lock()
	c.running = c.changed || at != 0
	waits := c.running && !c.changed
	if waits {
		c.endWait = cancel
	}
	running := c.running
	c.mu.Unlock()
	if waits {
		_ = c.o.Clock.WaitUntil(wait, at) // notify ends it too
	}
	return running
}

// applyArrivals adds contexts that came, and releases those that are gone.
func (c *Controller) applyArrivals(arrivals []arrival) {
	for _, t := range arrivals {
		s := c.contexts[t.slot]
		switch {
		case t.control == nil && s == nil:
			continue
		case t.control == nil:
			if err := s.release(true); err != nil {
				c.o.Log.Debug("release a context", "guest", c.o.Guest, "context", t.slot, "err", err)
			}
			delete(c.contexts, t.slot)
			continue
		case s == nil:
			s = &contextState{c: c, slot: t.slot}
			c.contexts[t.slot] = s
		case s.control != nil:
			// A disable through the old handles is undone through the new ones.
			if err := s.control.Close(); err != nil {
				c.o.Log.Debug("close a context's old handles", "guest", c.o.Guest, "context", t.slot, "err", err)
			}
			s.mustEnable = s.disabled
		}
		if s.slice = 0; c.o.Page.Sliced(t.slot) {
			s.slice = unknownSlice
		}
		s.control = t.control
		s.resetRetries()
	}
	if len(arrivals) > 0 {
		c.update(c.count)
	}
}

// invalidateAll marks what was done to all contexts as unknown.
func (c *Controller) invalidateAll() {
	for _, s := range c.contexts {
		s.invalidate()
	}
	c.update(c.count)
}

// apply applies the desired state to all contexts, and returns when to do so again, or 0 for never.
func (c *Controller) apply(w DesiredState, changed bool) (next time.Duration) {
	for _, s := range c.contexts {
		if changed {
			s.resetRetries()
		}
		if at := s.apply(w); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	c.update(c.count)
	return next
}

// count updates the numbers of contexts.
func (c *Controller) count(st *State) {
	st.Controlled, st.Disabled, st.Leftover = 0, 0, 0
	for _, s := range c.contexts {
		if s.control != nil {
			st.Controlled++
		}
		if s.disabled {
			st.Disabled++
		}
		if s.mustEnable {
			st.Leftover++
		}
	}
}

// release releases all contexts.
func (c *Controller) release() error {
	var errs []error
	for slot, s := range c.contexts {
		if err := s.release(c.guestEnded); err != nil {
			errs = append(errs, fmt.Errorf("guest %s: context %d: %w", c.o.Guest, slot, err))
		}
	}
	clear(c.contexts)
	c.update(c.count)
	return errors.Join(errs...)
}

// update changes the state by f.
func (c *Controller) update(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

// failed counts a failure, and logs it unless it is the same as the last one.
func (c *Controller) failed(slot int, err error) {
	text := fmt.Sprintf("context %d: %v", slot, err)
	c.mu.Lock()
	fresh := c.state.Problem != text
	c.state.Errors++
	c.state.Problem = text
	c.mu.Unlock()
	if fresh {
		c.o.Log.Warn("call of the GPU's driver failed", "guest", c.o.Guest, "context", slot, "err", err)
	}
}
