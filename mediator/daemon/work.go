package daemon

import (
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// accounts is what is remembered of a guest's accounts of work. It is the watcher's.
type accounts struct {
	work  accounting.Work       // scratch
	spans []accounting.Interval // scratch
	old   map[int]*counted      // by slot
	pids  [ipc.MaxContexts]said
	lives [ipc.MaxContexts]int // the process whose account is in a slot; 0: none's
	// strange is whether a process of the guest's was charged of which it said nothing.
	strange bool
}

// counted is what was last seen of a context whose page has no account of work.
type counted struct {
	gpuTime, since time.Duration
}

// Work implements [accounting.Workload]: what the guests' contexts had on the GPU,
// as their executors say.
func (s *share) Work(now time.Duration, f func(*accounting.Work)) {
	s.guests(func(guests []*guest) {
		for _, g := range guests {
			g.page.SetWorkLogWanted(true)
			for i := range ipc.MaxContexts {
				if w := s.ended(now, g, i); w != nil {
					f(w)
				}
				if w := g.accounts.of(g.page, i, now); w != nil {
					w.Group, w.PID = g.context(i), s.own(now, g, i, w.PID)
					s.launchesTold = max(s.launchesTold, len(w.Intervals))
					f(w)
				}
			}
		}
	})
}

// ended is what a guest's context had to do since the last look, where its process has ended
// since: the hardware's records of that name it, and its slot does not any more. nil is none.
// It is to be asked before anything else is of the slot.
func (s *share) ended(now time.Duration, g *guest, slot int) *accounting.Work {
	a, c := &g.accounts, g.page.Context(slot)
	last, pid := a.lives[slot], c.PID()
	a.lives[slot] = pid
	_, ready := c.Group()
	var w *accounting.Work
	// Where the next one is ready already, which takes longer than from look to look where
	// contexts are of hardware, nobody knows whose launches are whose.
	if last != 0 && last != pid && !ready && g.page.HasWorkLog() {
		if a.take(g.page.WorkLog(slot)); len(a.spans) > 0 {
			w = &a.work
			*w = accounting.Work{Group: g.context(slot), PID: s.was(g, slot, last), Intervals: a.spans}
		}
	}
	if pid != 0 && !ready {
		s.own(now, g, slot, pid) // which can't be found out once it has ended
	}
	return w
}

// of is what context i of a page had to do, nil where there is none. It is good until
// the next call.
func (a *accounts) of(page *ipc.ControlPage, i int, now time.Duration) *accounting.Work {
	slot := page.Context(i)
	group, ok := slot.Group()
	if !ok {
		return nil
	}
	w := &a.work
	*w = accounting.Work{Group: accounting.GroupID(group), PID: slot.PID()}
	if !page.HasWorkLog() {
		a.count(i, slot, now, w)
		return w
	}
	log := page.WorkLog(i)
	switch slot.State() {
	case ipc.ContextReady, ipc.ContextEnding:
		w.Since = log.Since() // else what was there ended with the context
	}
	a.take(log)
	w.Intervals = a.spans
	return w
}

// take takes what is in an account of work to spans.
func (a *accounts) take(log ipc.WorkLog) {
	a.spans = a.spans[:0]
	log.ReadAll(func(start, end time.Duration) {
		a.spans = append(a.spans, accounting.Interval{Start: start, End: end})
	})
}

// count goes by an executor's counters, where it keeps no account: its GPU time is
// taken to have been just now, and what is on the GPU to have come since the last
// look. Where others had the GPU in between, that is not the context's time, but
// what the GPU recorded bounds it.
func (a *accounts) count(i int, slot *ipc.ContextSlot, now time.Duration, w *accounting.Work) {
	c := a.old[i]
	t := slot.Counters().GPUTime
	if c == nil {
		c = &counted{gpuTime: t}
		if a.old == nil {
			a.old = make(map[int]*counted)
		}
		a.old[i] = c
	}
	if d := t - c.gpuTime; d > 0 {
		a.spans = append(a.spans[:0], accounting.Interval{Start: now - d, End: now})
		w.Intervals = a.spans
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

// unwanted tells executors that nobody reads their accounts of work any more.
func (s *share) unwanted() {
	s.guests(func(guests []*guest) {
		for _, g := range guests {
			g.page.SetWorkLogWanted(false)
		}
	})
}
