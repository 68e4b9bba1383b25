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
	poll    time.Duration // lengths planned
	quiet   time.Duration
	began   time.Duration // host time at which the present phase began

	polled  Phase // given to the handler with pollEnded
	rest    Quiet // given to the handler with quietEnded
	resting bool  // rest is open

	notified atomic.Bool // shared: a channel came or went
	asked    uint32      // messages sent
	done     atomic.Uint32
	plan     Plan // shared: written by the handler before done
	messages chan message
}

// message is what the thread tells a handler. At most three are under way: the
// end of a quiet phase, the end of the polling phase after it, and a failure.
type message struct {
	kind messageKind
	err  error
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
		messages: make(chan message, 3),
	}
	w.watcher, _ = g.Source.(Watcher)
	w.poll, w.quiet = w.planner.Next(w.load)
	return w
}

// serve runs the handler until the thread is through with the GPU.
func (w *watched) serve() {
	for m := range w.messages {
		switch m.kind {
		case pollEnded:
			w.plan = w.Handler.PollEnded(&w.polled)
		case quietEnded:
			w.Handler.QuietEnded(&w.rest)
		case failed:
			w.Handler.Failed(m.err)
		}
		w.done.Add(1)
	}
}

// tell sends a message. The thread never blocks in it: it begins a phase only
// when the handler is idle.
func (w *watched) tell(kind messageKind, err error) {
	w.asked++
	w.messages <- message{kind: kind, err: err}
}

// pending is how many messages the handler has not dealt with.
func (w *watched) pending() uint32 { return w.asked - w.done.Load() }

// idle is whether the handler has dealt with all it was told.
func (w *watched) idle() bool { return w.pending() == 0 }

// sample reads the status.
func (w *watched) sample() (Status, error) {
	st, err := w.Source.Sample()
	if err != nil {
		return st, fmt.Errorf("accounting: GPU %s: read its status: %w", w.Name, err)
	}
	return st, nil
}

// hurried is whether the present phase is to end early. It takes the
// notification.
func (w *watched) hurried(now, length time.Duration) bool {
	return w.notified.Load() && now-w.began >= length/4 && w.notified.Swap(false)
}
