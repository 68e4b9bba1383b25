package accounting

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// sampling is the state of one sampled GPU. It belongs to the goroutine that polls the GPU; the
// fields shared with the handler's goroutine say so.
type sampling struct {
	SampledGPU
	meter   *Meter
	watcher Watcher // Source, if it is one
	planner *Planner
	load    Load
	piece   Piece         // the next one
	began   time.Duration // host time at which the round began
	round   time.Duration // its planned length
	polling bool          // the round's polling phase has begun
	due     time.Duration // host time of the next piece
	gone    bool          // the GPU can't be read any more

	phase     Phase         // handed to the handler with pollEnded
	quiet     *Quiet        // handed to the handler with quietEnded
	spare     *Quiet        // takes the place of quiet, which the handler may still read
	quietOpen bool          // a quiet phase that the handler has not been told of is recorded in quiet
	unwatched time.Duration // time not polled since the quiet phase began
	pausedAt  time.Duration // GPU clock when polling paused

	notified atomic.Bool   // shared: a channel came or went
	sent     uint32        // messages sent to the handler
	handled  atomic.Uint32 // shared: messages that the handler has dealt with
	plan     Plan          // shared: written by the handler before it increments handled
	messages chan message  // nil in simulated time, where the handler is called at once
}

// message tells a handler something. At most three are under way: the end of a quiet phase, the end
// of the polling phase after it, and a failure.
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

// host is the machine that polls: a thread of the real host, or a simulation.
type host interface {
	// now returns the time, which only ever grows.
	now() time.Duration
	// stopped reports whether polling is to end.
	stopped() bool
	// spentCPU returns the processor time used since the last call.
	spentCPU() time.Duration
	// poll observes the GPU's status until the given time, until done reports true, or until
	// polling is to end.
	poll(s *sampling, until time.Duration, done func(now time.Duration) bool) error
}

func newSampling(g SampledGPU) *sampling {
	s := &sampling{
		SampledGPU: g,
		meter:      NewMeter(g.Config),
		planner:    NewPlanner(g.Config),
		quiet:      new(Quiet),
		spare:      new(Quiet),
	}
	s.watcher, _ = g.Source.(Watcher)
	if e, ok := g.Source.(EntryReader); ok {
		e.ReadEntries(g.Config.Idle != IdleByBusy)
	}
	s.newRound(0)
	s.piece.Pause = 0 // polling begins at once
	return s
}

// serve runs the handler until the messages end.
func (s *sampling) serve() {
	for m := range s.messages {
		s.handle(m)
	}
}

// handle gives the handler one message.
func (s *sampling) handle(m message) {
	switch m.kind {
	case pollEnded:
		s.plan = s.Handler.PollEnded(&s.phase)
	case quietEnded:
		s.Handler.QuietEnded(m.quiet)
	case failed:
		s.Handler.Failed(m.err)
	}
	s.handled.Add(1)
}

// tell sends a message. It never blocks, since a phase begins only when the handler is idle.
func (s *sampling) tell(m message) {
	s.sent++
	if s.messages == nil {
		s.handle(m)
		return
	}
	s.messages <- m
}

// handlerIdle reports whether the handler has dealt with all messages.
func (s *sampling) handlerIdle() bool { return s.sent == s.handled.Load() }

// endQuiet tells the handler of the quiet phase, once.
func (s *sampling) endQuiet() {
	if !s.quietOpen {
		return
	}
	s.quietOpen = false
	s.quiet.Unwatched, s.unwatched = s.unwatched, 0
	s.quiet.Spread = !s.polling
	s.tell(message{kind: quietEnded, quiet: s.quiet})
	s.quiet, s.spare = s.spare, s.quiet
}

// sample reads the status.
func (s *sampling) sample() (Status, error) {
	st, err := s.Source.Sample()
	if err != nil {
		return st, fmt.Errorf("accounting: GPU %s: read its status: %w", s.Name, err)
	}
	return st, nil
}

// newRound plans the round that begins at host time now.
func (s *sampling) newRound(now time.Duration) {
	poll, quiet := s.planner.Mean(s.load)
	s.began, s.round = now, poll+quiet
	s.planner.Restart()
	s.piece = s.planner.Next(s.load)
}

// minPhaseDivisor gives the least length of a phase that a notification ends early, as a divisor of
// the planned length. Without it a guest could have the GPU polled all the time by creating and
// destroying channels.
const minPhaseDivisor = 4

// endsEarly reports whether the round is to end before its time.
func (s *sampling) endsEarly(now time.Duration) bool {
	return s.notified.Load() && now-s.began >= s.round/minPhaseDivisor
}

// expedite makes the next piece due earlier if the round is to end early.
func (s *sampling) expedite(now time.Duration) {
	if s.notified.Load() {
		s.due = min(s.due, max(s.began+s.round/minPhaseDivisor, now))
	}
}

// visit polls the GPU for one piece. After a round's last piece it asks the handler for a plan and
// goes on polling for as long as the plan wants. Then it sets when the next piece is due.
func (s *sampling) visit(h host) error {
	if err := s.begin(); err != nil {
		return err
	}
	if err := h.poll(s, h.now()+s.piece.Poll, s.endsEarly); err != nil {
		return err
	}
	st, err := s.sample()
	if err != nil {
		return err
	}
	now := h.now()
	if !s.piece.Last && !s.endsEarly(now) && !h.stopped() {
		s.meter.Pause(st)
		if !s.quietOpen { // the first round has no quiet phase before it, but its pauses count
			begun := s.meter.phase.Start
			s.quietOpen, s.quiet.Watched = true, Phase{Start: begun, End: begun}
		}
		s.pausedAt = st.Clock
		s.piece = s.planner.Next(s.load)
		s.due = now + s.piece.Pause
		return nil
	}
	s.notified.Store(false)
	s.polling = false
	s.endQuiet()
	s.meter.Cut(st, &s.phase)
	s.phase.CPU = h.spentCPU()
	s.tell(message{kind: pollEnded})

	if err := s.carryOutPlan(h, now); err != nil || h.stopped() {
		return err
	}
	if s.Config.Full {
		// There is no quiet phase: what was polled since belongs to the next polling phase. A
		// phase as short as an answer takes shows only who has work at that instant.
		s.polling, s.due = true, now
		return nil
	}
	if st, err = s.sample(); err != nil {
		return err
	}
	s.meter.Cut(st, &s.quiet.Watched)
	s.quiet.Watched.CPU = h.spentCPU()
	s.quietOpen, s.pausedAt = true, st.Clock
	s.due = now + s.piece.Pause
	return nil
}

// begin starts the next piece. Where the GPU is polled all the time nothing was missed, and the
// meter simply continues.
func (s *sampling) begin() error {
	if s.polling && s.Config.Full {
		return nil
	}
	st, err := s.sample()
	if err != nil {
		return err
	}
	if s.quietOpen {
		s.unwatched += st.Clock - s.pausedAt
	}
	if s.polling {
		s.meter.Resume(st)
		return nil
	}
	s.polling = true
	s.load = s.plan.Load // of an answer that came too late for this round's length
	s.meter.Begin(st)
	if s.piece.Last {
		s.endQuiet() // the whole quiet phase is over
	}
	return nil
}

// carryOutPlan polls on after the end of a polling phase: until the handler has answered, and then
// for as long as its plan wants.
func (s *sampling) carryOutPlan(h host, ended time.Duration) error {
	timeout := AnswerTimeout
	if s.Config.Full {
		timeout = math.MaxInt64 - ended
	}
	if err := h.poll(s, ended+timeout, func(time.Duration) bool { return s.handlerIdle() }); err != nil {
		return err
	}
	if !s.handlerIdle() {
		s.newRound(ended)
		return nil
	}
	s.load = s.plan.Load
	s.newRound(ended)
	if longer := s.plan.WatchOn; longer > 0 {
		if err := h.poll(s, ended+longer, func(time.Duration) bool { return false }); err != nil {
			return err
		}
	}
	if len(s.plan.Await) == 0 {
		return nil
	}
	atMost := s.plan.AwaitAtMost
	if atMost <= 0 {
		_, atMost = s.planner.Mean(s.load)
	}
	return h.poll(s, ended+atMost, func(time.Duration) bool { return !s.meter.executesAny(s.plan.Await) })
}
