package accountingtest

import (
	"math/rand/v2"
	"time"

	"vgpud/accounting"
)

// Recorded is a simulated GPU that takes turns between contexts by time slices, preempts, and
// records its context switches, as measured on an H100: a context that has run out of work stays on
// the engine until another one wants it; the record of its save comes after the save; then it takes
// a while until the next one is loaded. A context that is alone causes no records. The zero value
// stands at its clock's epoch with no contexts, and switches at no cost.
type Recorded struct {
	// Save is how long the save of a context takes that has run out of work, Preempted that of one
	// that has not, and Load how long it takes until the next one is loaded.
	Save, Preempted, Load time.Duration
	// ResumeDelay is how much longer a kernel takes if it was preempted, however often.
	ResumeDelay time.Duration

	now      time.Duration
	contexts []*RecordedContext
	on       *RecordedContext // on the engine, also while it is saved
	came     time.Duration    // when it was loaded
	next     *RecordedContext // being loaded
	until    time.Duration    // when the save, or the load, is over; 0: neither
	turn     int              // index of the context that had the newest turn
	records  []accounting.Switch
}

// RecordedContext is a context with a stream of kernels.
type RecordedContext struct {
	PID   int
	Group accounting.GroupID
	// Slice is how long it may stay while others have work, 2 ms by default.
	Slice time.Duration
	// Fetched, if not 0, is how many kernels the hardware has fetched when the context is loaded.
	// Once they have ended it makes room for others that have work, as if it had run out of work.
	Fetched int
	// Kernel draws the next kernel's length, and how long the program waits before it submits it.
	// Depth is how many it keeps outstanding, at least 1.
	Kernel func() (length, think time.Duration)
	Depth  int

	queue     []kernel // on the GPU, oldest first
	coming    []kernel // to be submitted later
	waiting   []kernel // not fetched, while the context is held
	held      bool
	off       bool
	through   int // kernels that ended since it was loaded
	busy      time.Duration
	done      uint64
	intervals []accounting.Interval
	since     time.Duration // of what runs
	last      time.Duration // the newest kernel's end
}

type kernel struct {
	at    time.Duration // when it comes
	left  time.Duration // to be executed
	start time.Duration // of its first execution, where it began
	began bool
	late  time.Duration // of left, what is due to preemption only
	// behind reports whether it was queued behind another kernel. Its start is then stamped with
	// that one's end, whichever context had the GPU in between.
	behind bool
}

// Random draws kernels of about a length, and waiting times such that the kernels load the GPU by
// about a part of the time, load, if they are alone.
func Random(r *rand.Rand, length time.Duration, load float64) func() (time.Duration, time.Duration) {
	return func() (time.Duration, time.Duration) {
		d := time.Duration(float64(length) * (0.5 + r.Float64()))
		return d, time.Duration(float64(length) * (1/load - 1) * (0.5 + r.Float64()))
	}
}

// Add attaches a context at the present instant.
func (g *Recorded) Add(c *RecordedContext) {
	if c.Slice == 0 {
		c.Slice = 2 * time.Millisecond
	}
	for range max(c.Depth, 1) {
		c.think(g.now)
	}
	g.contexts = append(g.contexts, c)
	g.settle()
}

// Remove detaches a context with all it has, as the end of its process does.
func (g *Recorded) Remove(c *RecordedContext) {
	c.Kernel = nil
	c.queue, c.coming, c.waiting = nil, nil, nil
	g.settle()
}

// Hold stops fetching a context's kernels, or resumes it.
func (g *Recorded) Hold(c *RecordedContext, held bool) {
	c.held = held
	if !held {
		for _, k := range c.waiting {
			g.put(c, k)
		}
		c.waiting = nil
	}
	g.settle()
}

// Suspend takes a context's channels off the hardware in mid-kernel, or puts them back.
func (g *Recorded) Suspend(c *RecordedContext, off bool) {
	c.off = off
	g.settle()
}

// Now returns the GPU's clock.
func (g *Recorded) Now() time.Duration { return g.now }

// Busy returns how long the context has executed: the truth.
func (c *RecordedContext) Busy() time.Duration { return c.busy }

// Done returns how many of its kernels have ended.
func (c *RecordedContext) Done() uint64 { return c.done }

// Outstanding returns how many kernels are on the GPU.
func (c *RecordedContext) Outstanding() int { return len(c.queue) }

// Backlogged reports whether kernels wait that are not fetched.
func (c *RecordedContext) Backlogged() bool { return len(c.waiting) > 0 }

// Records returns the switches since the last call.
func (g *Recorded) Records() []accounting.Switch {
	r := g.records
	g.records = nil
	return r
}

// Work returns what the context's executor reports: the kernels that have ended since the last
// call, each from the stamp of its start to its end, and since when another one is there.
func (c *RecordedContext) Work() accounting.Work {
	w := accounting.Work{Group: c.Group, PID: c.PID, Intervals: c.intervals}
	c.intervals = nil
	if len(c.queue) > 0 {
		w.Since = c.since
	}
	return w
}

// think has the program prepare its next kernel.
func (c *RecordedContext) think(now time.Duration) {
	if c.Kernel == nil {
		return
	}
	length, think := c.Kernel()
	k := kernel{at: now + think, left: length}
	i := len(c.coming)
	for i > 0 && c.coming[i-1].at > k.at {
		i--
	}
	c.coming = append(c.coming, kernel{})
	copy(c.coming[i+1:], c.coming[i:])
	c.coming[i] = k
}

// put puts a kernel on the GPU.
func (g *Recorded) put(c *RecordedContext, k kernel) {
	k.behind = len(c.queue) > 0
	if !k.behind {
		c.since = g.now
	}
	c.queue = append(c.queue, k)
}

// executing reports whether the context on the engine executes.
func (g *Recorded) executing() bool { return g.on != nil && g.until == 0 && len(g.on.queue) > 0 }

// AdvanceTo carries the GPU's clock to t.
func (g *Recorded) AdvanceTo(t time.Duration) {
	for g.now < t {
		step := min(t, g.nextEvent())
		if g.executing() {
			g.on.busy += step - g.now
			g.on.queue[0].left -= step - g.now
		}
		g.now = step
		g.settle()
	}
}

// nextEvent returns when something changes next.
func (g *Recorded) nextEvent() time.Duration {
	next := never
	for _, c := range g.contexts {
		if len(c.coming) > 0 {
			next = min(next, c.coming[0].at)
		}
	}
	if g.until != 0 {
		return min(next, g.until)
	}
	if g.executing() {
		next = min(next, g.now+g.on.queue[0].left)
		if slice := g.came + g.on.Slice; slice > g.now && g.wanted() != nil {
			next = min(next, slice)
		}
	}
	return next
}

// wanted returns the context whose turn is next, or nil if no other one has work.
func (g *Recorded) wanted() *RecordedContext {
	for i := range g.contexts {
		if c := g.contexts[(g.turn+1+i)%len(g.contexts)]; c != g.on && !c.off && len(c.queue) > 0 {
			return c
		}
	}
	return nil
}

// settle carries out what is due now.
func (g *Recorded) settle() {
	for _, c := range g.contexts {
		for len(c.coming) > 0 && c.coming[0].at <= g.now {
			if k := c.coming[0]; c.held {
				c.waiting = append(c.waiting, k)
			} else {
				g.put(c, k)
			}
			c.coming = c.coming[1:]
		}
	}
	for g.proceed() {
	}
}

// proceed does the next thing that is due, if there is one.
func (g *Recorded) proceed() bool {
	switch {
	case g.until > g.now:
		return false
	case g.until != 0 && g.next != nil: // loaded
		g.arrive(g.next)
	case g.until != 0: // saved
		g.record(false)
		g.on, g.until = nil, 0
	case g.on == nil:
		next := g.wanted()
		if next == nil {
			return false
		}
		for i, c := range g.contexts {
			if c == next {
				g.turn = i
			}
		}
		g.next, g.until = next, g.now+g.Load
		if g.Load == 0 {
			g.arrive(next)
		}
	case g.on.off:
		return g.save(g.Preempted)
	case len(g.on.queue) > 0:
		k := &g.on.queue[0]
		if n := g.on.Fetched; n > 0 && g.on.through >= n && !k.began && g.wanted() != nil {
			return g.save(g.Save)
		}
		if !k.began {
			k.began, k.start = true, g.now
		}
		if k.left == 0 {
			g.finish()
			return true
		}
		if g.now >= g.came+g.on.Slice && g.wanted() != nil {
			if k.late == 0 {
				k.late = g.ResumeDelay
				k.left += g.ResumeDelay
			}
			return g.save(g.Preempted)
		}
		return false
	default:
		return g.wanted() != nil && g.save(g.Save)
	}
	return true
}

// arrive puts the context that was loaded on the engine.
func (g *Recorded) arrive(c *RecordedContext) {
	g.on, g.next, g.until, g.came = c, nil, 0, g.now
	c.through = 0
	g.record(true)
}

// save begins to save what is on the engine.
func (g *Recorded) save(cost time.Duration) bool {
	g.until = g.now + cost
	if cost == 0 {
		g.record(false)
		g.on, g.until = nil, 0
	}
	return true
}

// finish ends the kernel that executes.
func (g *Recorded) finish() {
	c := g.on
	k := c.queue[0]
	c.queue = c.queue[1:]
	c.busy -= k.late
	if k.behind {
		k.start = c.last
	}
	c.intervals = append(c.intervals, accounting.Interval{Start: k.start, End: g.now})
	c.last = g.now
	c.since = g.now
	c.done++
	c.through++
	c.think(g.now)
	if n := len(c.coming); n > 0 && c.coming[0].at <= g.now && !c.held {
		g.put(c, c.coming[0])
		c.coming = c.coming[1:]
	}
}

func (g *Recorded) record(on bool) {
	g.records = append(g.records, accounting.Switch{Clock: g.now, PID: g.on.PID, Group: g.on.Group, On: on})
}
