package machine

import (
	"math"
	"time"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Work describes the cost of a launch.
type Work struct {
	// Duration is how long it executes with the machine to itself, without [Config.Overhead].
	Duration time.Duration
	// Open means that Duration is not known yet. The caller finds it out while the launch executes,
	// and calls [Machine.Settle].
	Open bool
	// Limit is the execution time after which [Expired] is emitted, once; 0 means none.
	Limit time.Duration
	// Blocks and Need are the thread blocks and the resources of each. A launch without blocks fills
	// the machine.
	Blocks uint64
	Need   Resources
	// Memory is the part of the memory's bandwidth, 0 to 1, that the launch uses with the machine to
	// itself, and so the part of its time that it waits for memory. Only [CoRun] uses it: launches
	// that together want more than there is wait longer.
	Memory float64
}

// Launch is one command in a channel. The caller owns it, may embed it, and may submit it again
// after it has ended.
type Launch struct {
	Work
	// Tag belongs to the caller.
	Tag any

	channel     *Channel
	state       launchState
	elapsed     time.Duration // time executed so far
	start       time.Duration
	expired     bool
	evicting    bool   // cut short by Evict
	unplaced    uint64 // CoRun: blocks that are not resident yet
	resident    uint64 // CoRun: blocks that are resident
	maxResident uint64 // CoRun: resident blocks if it had the machine to itself
	block       time.Duration
	placed      []int // resident blocks by SM, see [Launch.Placed]
}

type launchState uint8

const (
	idle     launchState = iota // not submitted
	queued                      // waits in its channel
	begun                       // has executed; now on the engine or preempted
	finished                    // has ended
)

// Elapsed returns how long the launch has executed up to the machine's Now.
func (l *Launch) Elapsed() time.Duration { return l.elapsed }

// Start returns when the launch first executed.
func (l *Launch) Start() time.Duration { return l.start }

// Channel returns the channel that the launch was last submitted to.
func (l *Launch) Channel() *Channel { return l.channel }

// Queued reports whether the launch has been submitted and has not ended.
func (l *Launch) Queued() bool { return l.state == queued || l.state == begun }

// Channel is a queue of launches that run in order. The channels of a group take turns.
type Channel struct {
	m     *Machine
	group *Group
	id    uint32
	queue []*Launch // the first one executes, or is next
	ready bool      // in a queue of ready channels
	on    bool      // the first launch is on the engine
	shown uint32    // the entry as last written
	open  bool
}

// ID returns the channel's number, which is the index of its entry in the register file.
func (c *Channel) ID() uint32 { return c.id }

// Group returns the channel's group.
func (c *Channel) Group() *Group { return c.group }

// Len returns the number of queued launches, including one that executes.
func (c *Channel) Len() int { return len(c.queue) }

// Group is a channel group: the channels of one context, which the engine switches as a unit.
type Group struct {
	m        *Machine
	id       uint16
	slice    time.Duration
	ready    fifo[*Channel] // Slices: channels with work
	queued   bool           // in the machine's queue of ready groups
	fresh    bool           // not loaded since it became ready
	disabled bool
	open     bool
	channels []*Channel
	usage    Usage
	resident uint64 // CoRun: resident threads
}

// ID returns the group's number on the runlist, at least 1. The registers show it.
func (g *Group) ID() uint16 { return g.id }

// Usage is a group's exact use of the machine.
type Usage struct {
	Busy        time.Duration // executing
	Switching   time.Duration // its context was loaded, or saved for another group's
	Launches    uint64        // ended
	Preemptions uint64
	Evictions   uint64 // launches that left early, see [Machine.Evict]
}

// Usage returns the group's use up to the machine's Now.
func (g *Group) Usage() Usage { return g.usage }

// Totals is the machine's usage. Busy, Idle and Switching add up to Elapsed.
type Totals struct {
	Elapsed   time.Duration // since New
	Busy      time.Duration
	Idle      time.Duration
	Switching time.Duration
	Switches  uint64 // from one group to another
	Launches  uint64 // ended
	// Overruns counts launches that ended later than their Duration, and Overrun is the sum of the
	// delays. Only a live machine has any.
	Overruns uint64
	Overrun  time.Duration
}

// EventKind identifies what happened.
type EventKind uint8

// The kinds of events that [Machine.Step] returns.
const (
	Started   EventKind = iota + 1 // the launch executes for the first time
	Resumed                        // the launch executes again after a preemption
	Preempted                      // the launch left the engine and will come back
	Finished                       // the launch ended
	Expired                        // the launch has executed for its Limit; it goes on until it is killed
	Switched                       // Group's context is on the engine now; Launch is nil
	Evicted                        // the launch left early, see [Machine.Evict]
)

var eventNames = [...]string{Started: "started", Resumed: "resumed", Preempted: "preempted", Finished: "finished",
	Expired: "expired", Switched: "switched", Evicted: "evicted"}

// String returns the event's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// Event is an event at the machine's Now.
type Event struct {
	Kind   EventKind
	Launch *Launch
	Group  *Group
}

// fifo is a queue that reuses its memory.
type fifo[T comparable] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if q.head > 16 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) peek() T { return q.items[q.head] }

func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

func (q *fifo[T]) remove(v T) {
	for i := q.head; i < len(q.items); i++ {
		if q.items[i] == v {
			q.items = append(q.items[:i], q.items[i+1:]...)
			return
		}
	}
}
