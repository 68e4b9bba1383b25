package scheduler

import (
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// PageExecutors are a guest's executors as its control page shows them.
type PageExecutors struct{ Page *ipc.ControlPage }

var _ Executors = PageExecutors{}

// Activity implements [Executors].
func (p PageExecutors) Activity(now time.Duration) (a Activity) {
	for i := range ipc.MaxContexts {
		c := p.Page.Context(i)
		if c.Unused() {
			continue // as most are
		}
		a.Counters = a.Counters.Add(c.Counters())
		if c.State() == ipc.ContextNone {
			continue
		}
		a.Contexts++
		a.Worked += c.Worked(now)
		if _, ok := c.Group(); ok {
			a.Grouped++
		}
		n, backlog := c.Outstanding(), c.Backlog()
		if n == 0 && c.OnGPU() {
			n = 1 // memory that is being filled
		}
		a.Outstanding += n
		a.Backlog = a.Backlog || backlog
		if n > 0 || backlog {
			a.Working++
		}
	}
	return a
}

// Outstanding implements [Executors].
func (p PageExecutors) Outstanding(context int) uint64 { return p.Page.Context(context).Outstanding() }

// Groups implements [Executors].
func (p PageExecutors) Groups(f func(accounting.GroupID)) {
	for i := range ipc.MaxContexts {
		if id, ok := p.Page.Context(i).Group(); ok {
			f(accounting.GroupID(id))
		}
	}
}

// Generation implements [Executors].
func (p PageExecutors) Generation() uint64 { return p.Page.Changed() }

// Publish implements [Executors]. It overwrites whatever the guest's processes, which may write
// anything, have put there.
func (p PageExecutors) Publish(o Orders) {
	p.Page.SetBill(o.Bill)
	p.Page.SetTerms(o.Terms)
	if o.Heartbeat > 0 {
		p.Page.Beat(o.Heartbeat)
	}
	verdict := ipc.Run
	if o.Suspend {
		verdict = ipc.Suspend
	}
	p.Page.SetSuspendWord(verdict)
	if p.Page.Mode() != o.Mode {
		p.Page.SetMode(o.Mode)
	}
	p.Page.SetBusyWait(o.BusyWait)
	p.Page.SetPollLimit(o.PollLimit)
}
