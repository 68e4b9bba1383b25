package accounting

import (
	"fmt"
	"sync/atomic"
	"time"
)

// watched is one GPU's state between the polling thread and its handler. The
// thread owns all fields but those said to be shared.
type watched struct {
	Watched
	meter   *Meter
	watcher Watcher // Source, where it is one
	planner *Planner
	load    Load
	piece   Piece         // the next one
	began   time.Duration // host time at which the present round began
	round   time.Duration // its planned length
	inside  bool          // its polling phase has begun

	polled  Phase         // given to the handler with pollEnded
	rest    *Quiet        // given to the handler with quietEnded
	spare   *Quiet        // the handler may still read the one while the next is written
	resting bool          // rest is open
	quiet   time.Duration // not watched since rest's beginning was
	left    time.Duration // the GPU's clock where watching stopped

	notified atomic.Bool // shared: a channel came or went
	asked    uint32      // messages sent
	done     atomic.Uint32
	plan     Plan // shared: written by the handler before done
	messages chan message
}

// message is what the thread tells a handler. At most three are under way: the
// end of a quiet phase, the end of the polling phase after it, and a failure.
type message struct {
	kind  messageKind
	quiet *Quiet
	err   error
}

type messageKind uint8

const (
	pollEnded messageKind = iota
	quietEnded
	failed
)

func newWatched(g Watched) *watched {
	w := &watched{
		Watched:  g,
		meter:    NewMeter(g.Config),
		planner:  NewPlanner(g.Config),
		rest:     new(Quiet),
		spare:    new(Quiet),
		messages: make(chan message, 3),
	}
	w.watcher, _ = g.Source.(Watcher)
	w.newRound(0)
	w.piece.Pause = 0
	return w
}

// serve runs the handler until the thread is through with the GPU.
func (w *watched) serve() {
	for m := range w.messages {
		switch m.kind {
		case pollEnded:
			w.plan = w.Handler.PollEnded(&w.polled)
		case quietEnded:
			w.Handler.QuietEnded(m.quiet)
		case failed:
			w.Handler.Failed(m.err)
		}
		w.done.Add(1)
	}
}

// tell sends a message. The thread never blocks in it: it begins a phase only
// when the handler is idle.
func (w *watched) tell(m message) {
	w.asked++
	w.messages <- m
}

// tellQuiet tells of the quiet phase, unless that was done, or there was none.
func (w *watched) tellQuiet() {
	if !w.resting {
		return
	}
	w.resting = false
	w.rest.Unwatched, w.quiet = w.quiet, 0
	w.rest.Spread = !w.inside
	w.tell(message{kind: quietEnded, quiet: w.rest})
	w.rest, w.spare = w.spare, w.rest
}

// idle is whether the handler has dealt with all it was told.
func (w *watched) idle() bool { return w.asked == w.done.Load() }

// sample reads the status.
func (w *watched) sample() (Status, error) {
	st, err := w.Source.Sample()
	if err != nil {
		return st, fmt.Errorf("accounting: GPU %s: read its status: %w", w.Name, err)
	}
	return st, nil
}

// newRound plans the round that begins at the host's time now.
func (w *watched) newRound(now time.Duration) {
	poll, quiet := w.planner.Mean(w.load)
	w.began, w.round = now, poll+quiet
	w.planner.Restart()
	w.piece = w.planner.Next(w.load)
}

// hurried is whether the present round is to end early.
func (w *watched) hurried(now time.Duration) bool {
	return w.notified.Load() && now-w.began >= w.round/hurry
}
