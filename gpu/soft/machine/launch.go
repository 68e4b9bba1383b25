package machine

import (
	"math"
	"time"
)

// Never is an instant that doesn't come.
const Never = time.Duration(math.MaxInt64)

// Work is what a launch asks of the machine.
type Work struct {
	// Duration is how long it executes with the machine to itself, without [Config.Overhead].
	Duration time.Duration
	// Open says that Duration isn't known yet: somebody finds out while the launch executes, and says so with
	// [Machine.Settle].
	Open bool
	// Limit ends the wait for a launch that never ends: when it has executed so long, [Expired] says so, once; 0 is
	// none.
	Limit time.Duration
	// Blocks and Need are its thread blocks and what each occupies, for [CoRun]. No blocks: it fills the machine.
	Blocks uint64
	Need   Resources
}

// Launch is one command in a channel. The caller owns it, may embed it, and may submit it again after its end.
type Launch struct {
	Work
	// Tag is the caller's.
	Tag any

	channel *Channel
	state   launchState
	elapsed time.Duration // executed so far
	start   time.Duration
	expired bool
	leaving bool   // cut short by Evict
	undone  uint64 // CoRun: blocks that are not resident yet
	flying  uint64 // CoRun: blocks that are
	full    uint64 // CoRun: blocks resident with the machine to itself
	block   time.Duration
}

type launchState uint8

const (
	idle     launchState = iota // not submitted
	queued                      // in its channel
	begun                       // has executed; on the engine, or preempted
	finished                    // has ended
)

// Elapsed is how long it has executed up to the machine's Now.
func (l *Launch) Elapsed() time.Duration { return l.elapsed }

// Start is when it first executed.
func (l *Launch) Start() time.Duration { return l.start }

// Channel is where it was submitted last.
func (l *Launch) Channel() *Channel { return l.channel }

// Queued reports whether it is submitted and hasn't ended.
func (l *Launch) Queued() bool { return l.state == queued || l.state == begun }

// Channel is a queue of launches that run in order. Its group's channels take turns.
type Channel struct {
	m     *Machine
	group *Group
	id    uint32
	queue []*Launch // the first is executing, or next to
	ready bool      // in a queue of ready channels
	on    bool      // its first launch is on the engine
	shown uint32    // entry as last written
	open  bool
}

// ID is its number, the index of its entry in the register file.
func (c *Channel) ID() uint32 { return c.id }

// Group is the group it belongs to.
func (c *Channel) Group() *Group { return c.group }

// Len is how many launches are queued, the one that executes included.
func (c *Channel) Len() int { return len(c.queue) }

// Group is a channel group: a context's channels, which the engine switches to and from as one.
type Group struct {
	m        *Machine
	id       uint16
	slice    time.Duration
	ready    fifo[*Channel] // channels with work, under Slices
	queued   bool           // in the machine's queue of ready groups
	fresh    bool           // ready, and not loaded since it became so
	disabled bool
	open     bool
	channels []*Channel
	usage    Usage
	resident uint64 // CoRun: threads resident
}

// ID is its number on the runlist: what the registers show, at least 1.
func (g *Group) ID() uint16 { return g.id }

// Usage is what the machine knows of a group's use of it. It is the truth.
type Usage struct {
	Busy        time.Duration // executing
	Switching   time.Duration // being loaded, and saved for another
	Launches    uint64        // ended
	Preemptions uint64
	Evictions   uint64 // launches that left because they were asked to, see [Machine.Evict]
}

// Usage is the group's use up to the machine's Now.
func (g *Group) Usage() Usage { return g.usage }

// Totals are the machine's accounts. Busy, Idle and Switching add up to Elapsed.
type Totals struct {
	Elapsed   time.Duration // since the machine was made
	Busy      time.Duration
	Idle      time.Duration
	Switching time.Duration
	Switches  uint64 // from one group to another
	Launches  uint64 // ended
	// Overruns counts launches that ended later than their Duration said, and Overrun by how much in all: only a live
	// machine has any.
	Overruns uint64
	Overrun  time.Duration
}

// EventKind says what happened.
type EventKind uint8

// The events of [Machine.Step].
const (
	Started   EventKind = iota + 1 // the launch executes for the first time
	Resumed                        // it executes again after a preemption
	Preempted                      // it left the engine and will come back
	Finished                       // it ended
	Expired                        // it has executed for its Limit, and goes on until killed
	Switched                       // Group is on the engine now; Launch is nil
	Evicted                        // it left because it was asked to, see [Machine.Evict]
)

var eventNames = [...]string{Started: "started", Resumed: "resumed", Preempted: "preempted", Finished: "finished",
	Expired: "expired", Switched: "switched", Evicted: "evicted"}

// String is the event in a word.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// Event is something that happened at the machine's Now.
type Event struct {
	Kind   EventKind
	Launch *Launch
	Group  *Group
}

// fifo is a queue whose memory is reused.
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
