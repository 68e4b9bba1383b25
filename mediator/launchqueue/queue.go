package launchqueue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// Queue holds the launches that wait for one GPU or run on it. The zero value is an empty queue
// without an eviction deadline.
//
// A policy is told of one event at a time, and is shown the launches that it has been told of
// before: as the newest read found them, with what it has had done to them since.
type Queue struct {
	launches []*Launch                      // in order of arrival
	byID     map[fairshare.LaunchID]*Launch // those that have not ended
	guests   map[fairshare.GuestID]*guestQueue
	lastID   fairshare.LaunchID
	events   []event // of which the first passed were told to the policy
	passed   int
	shown    []fairshare.Launch // reused by Launches
	reads    uint64
	readAt   time.Duration // when Read was last called
	// evictionDeadline is how long a launch may take to leave the GPU; 0 is no limit.
	evictionDeadline time.Duration
	count            counts
	// ended launches may still be named by events; spare ones are reused.
	ended, spare []*Launch
}

// guestQueue is the part of a queue that belongs to one guest.
type guestQueue struct {
	launches [ipc.MaxLaunchSlots]*Launch // by slot
	tracked  uint64                      // a bit for each slot that has one
	ended    [ipc.MaxLaunchSlots]uint64  // the number of the launch that was last seen to have ended, by slot
	read     uint64                      // the newest read that included the guest
	// needsVerdicts reports whether its launches wait for verdicts; timeLimit is how long one may
	// run, 0 for ever; inTurn reports whether they need none now.
	needsVerdicts, inTurn bool
	timeLimit             time.Duration
	conduct
}

// event is what a policy will be told of a launch.
type event struct {
	kind   fairshare.EventKind
	launch *Launch
}

// Slots are the launch slots of one guest. An [ipc.ControlPage] has some.
type Slots interface {
	// TouchedSlots returns a bit for each slot that may have a launch.
	TouchedSlots() uint64
	// LaunchSlot returns slot i, from 0 to ipc.MaxLaunchSlots-1.
	LaunchSlot(i int) *ipc.LaunchSlot
}

// Guest is a guest whose slots are read. Mode, Ceiling and TimeLimit are the daemon's own settings
// and never read back from shared memory.
type Guest struct {
	ID        fairshare.GuestID
	Name      string
	Slots     Slots
	Mode      ipc.Mode      // how its launches are treated
	Ceiling   int           // the highest priority that they may have
	TimeLimit time.Duration // how long one may run; 0 is no limit
	// NoNews reports whether nothing says that a launch has come since the last read. Then only the
	// slots of launches that the queue has are read.
	NoNews bool
	// InTurn reports whether it was the guest's turn at any time since the last read, so that a
	// launch needed no verdict to go to the GPU.
	InTurn bool
}

// goesAhead reports whether a launch that has just arrived goes to the GPU without a verdict.
func (g *Guest) goesAhead(s *ipc.Launch) bool {
	return g.Mode == ipc.ModeAhead && s.Priority >= g.Ceiling && !(g.InTurn && s.State.OnGPU())
}

// MaxDuration bounds every duration that is read from shared memory.
const MaxDuration = 24 * time.Hour

// sanitize limits what a slot says at now to what is possible.
func (g *Guest) sanitize(s *ipc.Launch, now time.Duration) {
	s.Priority = min(s.Priority, g.Ceiling)
	s.Started, s.Stopped = min(max(s.Started, 0), now), min(max(s.Stopped, 0), now)
	s.Used, s.Predicted = min(max(s.Used, 0), MaxDuration), min(max(s.Predicted, 0), MaxDuration)
}

// Change is something that happened to a launch.
type Change struct {
	Kind   ChangeKind
	Launch *Launch
	// Took is how long an evicted launch took to leave, 0 if it was not asked to; with TurnUnused,
	// how long others waited for it.
	Took time.Duration
}

// ChangeKind says what happened to a launch.
type ChangeKind uint8

const (
	Appeared ChangeKind = iota
	// Left: it left the GPU with work undone.
	Left
	// Ended: it ran to its end, or failed.
	Ended
	// Gone: its slot is free or belongs to another launch.
	Gone
	// Unresponsive: it did not leave when told to, and is not expected to any more.
	Unresponsive
	// TurnUnused: it was let to the GPU and did not start.
	TurnUnused
	// Stuck: it keeps the GPU for longer than it may, so nobody waits for it any more.
	Stuck
)

// SetEvictionDeadline sets how long a launch may take to leave the GPU; 0 is no limit.
func (q *Queue) SetEvictionDeadline(d time.Duration) { q.evictionDeadline = d }

// Read reads the slots of all guests at now. It calls report at once for every change, and queues
// the policy's events. A guest that is not among guests any more takes its launches along.
func (q *Queue) Read(now time.Duration, guests []Guest, report func(Change)) {
	q.reads++
	q.restartIdleTimes(now)
	if len(q.events) == 0 {
		q.spare, q.ended = append(q.spare, q.ended...), q.ended[:0]
	}
	for i := range guests {
		q.readGuest(now, &guests[i], report)
	}
	if len(q.guests) > len(guests) {
		q.dropOthers(report)
	}
	q.readAt = now
	q.checkStalls(now, report)
	q.launches = slices.DeleteFunc(q.launches, func(l *Launch) bool { return l.over })
	if !slices.IsSortedFunc(q.launches, byArrival) {
		slices.SortStableFunc(q.launches, byArrival)
	}
	q.announce()
}

func byArrival(x, y *Launch) int { return cmp.Compare(x.Arrived, y.Arrived) }

// dropOthers drops the guests that were not among those of the newest read.
func (q *Queue) dropOthers(report func(Change)) {
	for id, gq := range q.guests {
		if gq.read == q.reads {
			continue
		}
		for _, l := range gq.launches {
			q.end(l, Gone, report)
		}
		delete(q.guests, id)
	}
}

// readGuest reads a guest's slots.
func (q *Queue) readGuest(now time.Duration, g *Guest, report func(Change)) {
	gq := q.guests[g.ID]
	found := gq == nil // an earlier daemon may have let its launches to the GPU
	if found {
		gq = new(guestQueue)
		if q.guests == nil {
			q.guests = make(map[fairshare.GuestID]*guestQueue)
		}
		q.guests[g.ID] = gq
	}
	q.updateConduct(now, gq)
	gq.read, gq.needsVerdicts, gq.timeLimit, gq.inTurn = q.reads, g.Mode != ipc.ModeFree, g.TimeLimit, g.InTurn
	unread := gq.tracked
	if !g.NoNews || found {
		unread |= g.Slots.TouchedSlots()
	}
	for ; unread != 0; unread &= unread - 1 {
		i := bits.TrailingZeros64(unread)
		slot := g.Slots.LaunchSlot(i)
		l := gq.launches[i]
		// Most slots are free, and cost next to nothing.
		if launch, state := slot.State(); l == nil && (state <= slotstate.Prep || !state.Valid() || state == slotstate.Done && launch == gq.ended[i]) {
			continue
		}
		s, ok := slot.Read()
		if l != nil && (!ok || s.ID != l.slot.ID) {
			q.end(l, Gone, report)
			gq.launches[i], l = nil, nil
		}
		if !ok {
			continue
		}
		g.sanitize(&s, now)
		if l == nil {
			l = q.add(now, g, gq, i, s)
			l.granted = found
			report(Change{Kind: Appeared, Launch: l})
		}
		if q.update(now, l, s, report); l.over {
			gq.ended[i] = s.ID
		}
	}
}

// add begins to track the launch in a guest's slot. Its earlier states are not reported.
func (q *Queue) add(now time.Duration, g *Guest, gq *guestQueue, slot int, s ipc.Launch) *Launch {
	l := new(Launch)
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	}
	q.lastID++
	*l = Launch{
		// It was not there at the read before.
		Launch:    fairshare.Launch{ID: q.lastID, Guest: g.ID, Arrived: min(max(s.Arrived, q.readAt), now)},
		GuestName: g.Name, queue: gq, index: slot, shared: g.Slots.LaunchSlot(slot), slot: s,
		evictions: s.Evictions, ahead: g.goesAhead(&s), progress: progress{idleSince: now, readySince: now, onGPUSince: now},
	}
	if l.slot.Asked = min(max(s.Asked, 0), now); s.State != slotstate.ToEvict {
		l.slot.BelowSM = 0
	}
	if q.byID == nil {
		q.byID = make(map[fairshare.LaunchID]*Launch)
	}
	q.launches, q.byID[l.ID] = append(q.launches, l), l
	gq.launches[slot] = l
	gq.tracked |= 1 << slot
	return l
}

// update compares a launch's slot as it is now with what was last seen.
func (q *Queue) update(now time.Duration, l *Launch, s ipc.Launch, report func(Change)) {
	before := l.slot
	s.Asked, s.Deadline, s.BelowSM = before.Asked, before.Deadline, before.BelowSM
	// The executor counts an eviction before it changes the state.
	there := s.State == slotstate.ToEvict || s.State == slotstate.Running && s.Started == before.Started
	left := s.Evictions != l.evictions && !there
	if before.State == slotstate.ToEvict && s.State == slotstate.Running && !left {
		s.State = slotstate.ToEvict // the daemon has not said that it may stay
	}
	l.slot = s
	if before.State == slotstate.ToEvict && before.Evictable && !s.Evictable && s.Started == before.Started {
		l.unresponsive = true
		report(Change{Kind: Unresponsive, Launch: l})
	}
	if left || s.Started != before.Started {
		l.unstarted = false
	}
	if left {
		l.evictions, l.ahead, l.granted = s.Evictions, false, false
		c := Change{Kind: Left, Launch: l}
		// A launch that was to leave only some of the SMs has gone on, on the others.
		if before.State == slotstate.ToEvict && s.BelowSM == math.MaxUint32 {
			c.Took = min(max(s.Stopped-s.Asked, 1), max(now-s.Asked, 1))
		}
		l.slot.BelowSM = 0
		report(c)
		if l.announced {
			q.events = append(q.events, event{fairshare.Evicted, l})
		}
	}
	if s.State == slotstate.Done {
		q.end(l, Ended, report)
		return
	}
	q.track(now, l, before.State)
}

// end stops tracking a launch.
func (q *Queue) end(l *Launch, how ChangeKind, report func(Change)) {
	if l == nil || l.over {
		return
	}
	l.over = true
	l.queue.launches[l.index] = nil
	l.queue.tracked &^= 1 << l.index
	delete(q.byID, l.ID)
	q.ended = append(q.ended, l)
	report(Change{Kind: how, Launch: l})
	if l.announced {
		q.events = append(q.events, event{fairshare.Finished, l})
	}
}

// Drop stops tracking a launch whose slot is not what it was at the last read. If there is a launch
// in it, the next read finds that.
func (q *Queue) Drop(l *Launch, report func(Change)) { q.end(l, Gone, report) }

// Reannounce queues an arrival of every launch, for another policy.
func (q *Queue) Reannounce() {
	q.events, q.passed = q.events[:0], 0
	for _, l := range q.launches {
		l.told, l.announced = false, false
	}
	q.announce()
}

// announce queues the arrivals of the launches that the policy does not know.
func (q *Queue) announce() {
	for _, l := range q.launches {
		if !l.announced && l.excluded == notExcluded {
			l.announced = true
			q.events = append(q.events, event{fairshare.Arrived, l})
		}
	}
}

// Next takes the next event for the policy off the queue. It returns false if there is none.
func (q *Queue) Next() (ev fairshare.Event, ok bool) {
	if len(q.events) == 0 {
		return ev, false
	}
	e := q.events[q.passed]
	if q.passed++; q.passed == len(q.events) {
		q.events, q.passed = q.events[:0], 0
	}
	e.launch.told = e.kind != fairshare.Finished
	return fairshare.Event{Kind: e.kind, Guest: e.launch.Guest, Launch: e.launch.ID}, true
}

// Launches returns the launches that the policy knows of, at now, on a GPU with sms SMs. cost
// returns what evicting a launch is expected to cost. The result is valid until the next call.
func (q *Queue) Launches(now time.Duration, sms uint32, cost func(*Launch) time.Duration) []fairshare.Launch {
	q.shown = q.shown[:0]
	for _, l := range q.launches {
		if !l.told || l.over || l.excluded != notExcluded {
			continue
		}
		l.refresh(now, sms)
		l.EvictionCost = cost(l)
		q.shown = append(q.shown, l.Launch)
	}
	return q.shown
}

// Find returns the launch with that ID, or nil if there is none or it has ended.
func (q *Queue) Find(id fairshare.LaunchID) *Launch { return q.byID[id] }

// Counts are numbers of launches by where they stand.
type Counts struct{ Waiting, Running, Leaving int }

// Count counts the launches of all guests.
func (q *Queue) Count() (n Counts) {
	for _, l := range q.launches {
		l.countIn(&n)
	}
	return n
}

// CountOf counts the launches of one guest.
func (q *Queue) CountOf(guest fairshare.GuestID) (n Counts) {
	gq := q.guests[guest]
	if gq == nil {
		return n
	}
	for unread := gq.tracked; unread != 0; unread &= unread - 1 {
		gq.launches[bits.TrailingZeros64(unread)].countIn(&n)
	}
	return n
}
