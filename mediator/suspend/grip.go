package suspend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// Options are what a grip works with. All fields but Left must be set.
type Options struct {
	// Guest is its name.
	Guest string
	// Page is the guest's, and must stay until Close has returned.
	Page    *ipc.ControlPage
	Intents *Intents
	// Left are the contexts that an earlier daemon may have left disabled, by slot.
	// They are enabled as soon as their handles come, whatever is wanted then.
	Left []int
	// DefaultSlice is the driver's time slice.
	DefaultSlice time.Duration
	Clock        clock.Clock
	Log          *slog.Logger
}

// Grip is the daemon's grip on one guest's contexts. Its methods may be called from
// any goroutine.
type Grip struct {
	o       Options
	done    chan struct{}
	settled chan struct{}
	settle  sync.Once

	mu    sync.Mutex
	wish  Wish
	taken []take
	doubt bool // Doubt was called
	state State
	// news is whether there is something that the goroutine has not looked at, rearm
	// ends its wait for that.
	news   bool
	rearm  context.CancelFunc
	over   bool // Close was called
	ended  bool // as it said
	closed error

	hands map[int]*hand // the goroutine's
}

// take is a context's control that came, or, where it is nil, went.
type take struct {
	slot    int
	control gpu.Control
}

// State is what a grip has done, and how things stand.
type State struct {
	// Controlled is how many contexts can be controlled, and Disabled how many are off
	// the GPU or may be.
	Controlled, Disabled int
	// Left is how many of these are to be enabled whatever is wanted: those of
	// [Options].Left, what a failed call may have disabled, and what executors may have
	// enabled.
	Left int
	// Disables and Enables count calls that worked, DisableTime and EnableTime are how
	// long these took, and DisabledTime is how long contexts were off, of those that
	// are back.
	Disables, Enables                     uint64
	DisableTime, EnableTime, DisabledTime time.Duration
	// Slices counts time slices that were set; Slice is what is wanted now, 0 for the
	// driver's own.
	Slices uint64
	Slice  time.Duration
	// Errors counts calls that failed; Problem is the newest such failure since which
	// none has worked.
	Errors  uint64
	Problem string
}

// New begins to hold a guest. Close must be called.
func New(o Options) *Grip {
	g := &Grip{o: o, done: make(chan struct{}), settled: make(chan struct{}), hands: make(map[int]*hand), news: true}
	now := o.Clock.Now()
	for _, slot := range o.Left {
		g.hands[slot] = &hand{g: g, slot: slot, off: true, stale: true, undone: true, since: now}
	}
	g.count(&g.state)
	go g.run()
	return g
}

// Settled is closed once all of [Options].Left are enabled, or their contexts are
// gone, or the guest is.
func (g *Grip) Settled() <-chan struct{} { return g.settled }

// Set says what is wanted of the guest's contexts from now on.
func (g *Grip) Set(w Wish) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w == g.wish || g.over {
		return
	}
	g.wish = w
	g.state.Slice = w.Slice
	g.stir()
}

// Take is for a context whose handles have come: control is power over it, and
// becomes the grip's. nil is for one that is gone.
func (g *Grip) Take(slot int, control gpu.Control) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		if control == nil {
			return nil
		}
		return control.Close()
	}
	g.taken = append(g.taken, take{slot, control})
	g.stir()
	return nil
}

// Doubt says that the daemon was silent for so long that executors may have enabled
// what is disabled, and given time slices back. Nothing that was done is relied on any
// more: it is undone once too often, and done again.
func (g *Grip) Doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	g.doubt = true
	g.stir()
}

// Refused notes that a context can't be controlled, and why.
func (g *Grip) Refused(slot int, err error) { g.failed(slot, err) }

// State is how things stand.
func (g *Grip) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// Close undoes everything and lets go of the guest; ended is whether its process has
// ended. The error is of what could not be undone.
func (g *Grip) Close(ended bool) error {
	g.mu.Lock()
	if !g.over {
		g.over, g.ended = true, ended
		g.stir()
	}
	g.mu.Unlock()
	<-g.done
	return g.closed
}

// stir has the goroutine look. The caller holds mu.
func (g *Grip) stir() {
	g.news = true
	if g.rearm != nil {
		g.rearm()
	}
}

// run makes things so as they are wanted, until Close.
func (g *Grip) run() {
	defer close(g.done)
	defer g.settle.Do(func() { close(g.settled) })
	var at time.Duration
	var wish Wish
	for {
		if g.State().Left == 0 {
			g.settle.Do(func() { close(g.settled) })
		}
		wait, cancel := context.WithCancel(context.Background())
		g.mu.Lock()
		news := g.news
		if !news {
			g.rearm = cancel
		}
		g.mu.Unlock()
		if !news {
			if at == 0 {
				<-wait.Done()
			} else {
				_ = g.o.Clock.WaitUntil(wait, at) // its end and the news are one
			}
		}
		cancel()
		g.mu.Lock()
		taken, doubt, over := g.taken, g.doubt, g.over
		changed := wish != g.wish
		wish = g.wish
		g.taken, g.doubt, g.news, g.rearm = nil, false, false, nil
		g.mu.Unlock()
		g.take(taken)
		if doubt {
			g.doubtAll()
		}
		if over {
			g.closed = g.release()
			return
		}
		at = g.step(wish, changed)
	}
}

// take takes up contexts that came, and lets go of those that went.
func (g *Grip) take(taken []take) {
	for _, t := range taken {
		h := g.hands[t.slot]
		switch {
		case t.control == nil && h == nil:
			continue
		case t.control == nil:
			if err := h.release(true); err != nil {
				g.o.Log.Debug("let go of a context", "guest", g.o.Guest, "context", t.slot, "err", err)
			}
			delete(g.hands, t.slot)
			continue
		case h == nil:
			h = &hand{g: g, slot: t.slot}
			g.hands[t.slot] = h
		case h.control != nil:
			// A disable through the old ones is undone through the new.
			if err := h.control.Close(); err != nil {
				g.o.Log.Debug("let go of a context's old handles", "guest", g.o.Guest, "context", t.slot, "err", err)
			}
			h.stale = h.off
		}
		if h.slice = 0; g.o.Page.Sliced(t.slot) {
			h.slice = unknownSlice
		}
		h.control = t.control
		h.again()
	}
	if len(taken) > 0 {
		g.note(g.count)
	}
}

// doubtAll relies on nothing any more that was done.
func (g *Grip) doubtAll() {
	for _, h := range g.hands {
		h.doubt()
	}
	g.note(g.count)
}

// step looks at all contexts, and returns when to look again, 0 for never.
func (g *Grip) step(w Wish, changed bool) (next time.Duration) {
	for _, h := range g.hands {
		if changed {
			h.again()
		}
		if at := h.step(w); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	g.note(g.count)
	return next
}

// count brings what the state says of contexts up to date.
func (g *Grip) count(s *State) {
	s.Controlled, s.Disabled, s.Left = 0, 0, 0
	for _, h := range g.hands {
		if h.control != nil {
			s.Controlled++
		}
		if h.off {
			s.Disabled++
		}
		if h.stale {
			s.Left++
		}
	}
}

// release lets go of all contexts.
func (g *Grip) release() error {
	var errs []error
	for slot, h := range g.hands {
		if err := h.release(g.ended); err != nil {
			errs = append(errs, fmt.Errorf("guest %s: context %d: %w", g.o.Guest, slot, err))
		}
	}
	clear(g.hands)
	g.note(g.count)
	return errors.Join(errs...)
}

// note changes the state.
func (g *Grip) note(f func(*State)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.state)
}

// failed counts a failure, and says so unless it is the same as before.
func (g *Grip) failed(slot int, err error) {
	text := fmt.Sprintf("context %d: %v", slot, err)
	g.mu.Lock()
	fresh := g.state.Problem != text
	g.state.Errors++
	g.state.Problem = text
	g.mu.Unlock()
	if fresh {
		g.o.Log.Warn("GPU's driver does not do as it is told", "guest", g.o.Guest, "context", slot, "err", err)
	}
}
