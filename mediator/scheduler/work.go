package scheduler

import (
	"math"
	"math/bits"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// workReader reads what a guest's executors record of their work on its control page. The watcher's
// goroutine alone uses it.
type workReader struct {
	work  accounting.Work       // reused
	spans []accounting.Interval // reused
	old   map[int]*counted      // by context, of executors that keep no record
	pids  [ipc.MaxContexts]claimedPID
	spare claimedPID           // see [Guest.SetSpare]
	lives [ipc.MaxContexts]int // the process whose record is in a slot; 0 is none
	left  uint32               // a bit for each of lives that is not 0
	// disabled reports which contexts were off the GPU at the last call.
	disabled [ipc.MaxContexts]bool
	// unattributed reports whether a process of the guest was charged that no context claims.
	unattributed bool
}

// counted is what was last seen of a context whose executor keeps no record of work.
type counted struct {
	gpuTime, since time.Duration
}

// Work implements [accounting.Workload]: it calls f with what each of the guests' contexts had on
// the GPU, as their executors recorded it.
func (s *Scheduler) Work(now time.Duration, f func(*accounting.Work)) {
	s.roster.RLock()
	defer s.roster.RUnlock()
	s.workLook.begin(len(s.guests))
	for i, g := range s.guests {
		page := g.o.Page
		if page == nil {
			continue
		}
		page.SetWorkLogWanted(true)
		used := g.work.left | usedContexts(g, s.workLook.includes(i))
		spare, taken := int(g.spare.Load()), false
		for g.work.left = 0; used != 0; used &= used - 1 {
			i := bits.TrailingZeros32(used)
			if w := s.lastWork(now, g, i); w != nil {
				f(w)
			}
			if w := g.work.read(page, i, now); w != nil {
				taken = taken || w.PID == spare
				w.Group, w.PID = g.contextGroup(i), s.contextProcess(now, g, i, w.PID)
				s.mostRecorded = max(s.mostRecorded, len(w.Intervals))
				f(w)
			}
			if g.work.lives[i] != 0 {
				g.work.left |= 1 << i
			}
		}
		if spare != 0 && (taken || !s.spareWork(now, g, spare, f)) {
			g.spare.CompareAndSwap(int64(spare), 0)
		}
	}
}

// spareWork calls f with what a guest's context ahead has on the GPU, which is nothing. It reports
// whether the process that made the context is there, and the guest's.
func (s *Scheduler) spareWork(now time.Duration, g *Guest, pid int, f func(*accounting.Work)) bool {
	if s.ownProcess(now, g, &g.work.spare, pid) == 0 {
		return false
	}
	w := &g.work.work
	*w = accounting.Work{Group: g.contextGroup(0), PID: pid}
	f(w)
	return true
}

// usedContexts returns a bit for each context that a guest used. look says whether to look at all
// of them for that.
func usedContexts(g *Guest, look bool) uint32 {
	switch {
	case g.page == nil:
		return math.MaxUint32
	case look:
		return g.page.lookAgain()
	}
	return g.page.usedContexts()
}

// lastWork returns what a guest's context had on the GPU since the last call, if its process has
// ended since: the hardware's records name that process, and the slot does not any more. Otherwise
// it returns nil. It must be called before anything else is read from the slot.
func (s *Scheduler) lastWork(now time.Duration, g *Guest, context int) *accounting.Work {
	r, page := &g.work, g.o.Page
	c := page.Context(context)
	last, pid := r.lives[context], c.PID()
	r.lives[context] = pid
	_, ready := c.Group()
	var w *accounting.Work
	// If the next process is ready already, nobody knows whose records these are. On hardware a
	// context takes longer to be made than from one call to the next.
	if last != 0 && last != pid && !ready && page.HasWorkLog() {
		if r.take(page.WorkLog(context)); len(r.spans) > 0 {
			w = &r.work
			*w = accounting.Work{Group: g.contextGroup(context), PID: g.lastProcess(context, last), Intervals: r.spans}
		}
	}
	if pid != 0 && !ready {
		s.contextProcess(now, g, context, pid) // which can't be found out once it has ended
	}
	return w
}

// read returns what context i had on the GPU since the last call, or nil if there is no context.
// The result is valid until the next call.
func (r *workReader) read(page *ipc.ControlPage, i int, now time.Duration) *accounting.Work {
	slot := page.Context(i)
	group, ok := slot.Group()
	if !ok {
		return nil
	}
	w := &r.work
	*w = accounting.Work{Group: accounting.GroupID(group), PID: slot.PID()}
	if !page.HasWorkLog() {
		r.count(i, slot, now, w)
		return w
	}
	record := page.WorkLog(i)
	switch slot.State() {
	case ipc.ContextReady, ipc.ContextEnding:
		w.Since = record.Since() // else what was there ended with the context
	}
	r.take(record)
	w.Intervals = r.spans
	disabled := page.Disabled(i)
	w.Suspended = disabled || r.disabled[i]
	r.disabled[i] = disabled
	return w
}

// take moves what is in a record of work to spans.
func (r *workReader) take(record ipc.WorkLog) {
	r.spans = r.spans[:0]
	record.ReadAll(func(start, end time.Duration) {
		r.spans = append(r.spans, accounting.Interval{Start: start, End: end})
	})
}

// count goes by the counters of an executor that keeps no record. Its GPU time is taken to have
// been just now, and what is on the GPU to have come since the last call. If others had the GPU in
// between, that is not the context's time, but the GPU's own record bounds it.
func (r *workReader) count(i int, slot *ipc.ContextSlot, now time.Duration, w *accounting.Work) {
	c := r.old[i]
	t := slot.Counters().GPUTime
	if c == nil {
		c = &counted{gpuTime: t}
		if r.old == nil {
			r.old = make(map[int]*counted)
		}
		r.old[i] = c
	}
	if d := t - c.gpuTime; d > 0 {
		r.spans = append(r.spans[:0], accounting.Interval{Start: now - d, End: now})
		w.Intervals = r.spans
	}
	c.gpuTime = t
	switch {
	case slot.Outstanding() == 0:
		c.since = 0
	case c.since == 0:
		c.since = now
	}
	w.Since = c.since
}

// stopRecording tells executors that nobody reads their records of work any more.
func (s *Scheduler) stopRecording() {
	s.roster.RLock()
	defer s.roster.RUnlock()
	for _, g := range s.guests {
		if g.o.Page != nil {
			g.o.Page.SetWorkLogWanted(false)
		}
	}
}
