package scheduler

import (
	"math/bits"
	"sync/atomic"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// PageExecutors are a guest's executors as its control page shows them. Most of a page's contexts
// were never used. Which were is remembered until the page says that a context came or went, or
// lookAgain is called.
type PageExecutors struct {
	Page *ipc.ControlPage
	// used has a bit for each context that was used, below the page's count of changes at that
	// time, plus 1, in the upper half. 0 is not known.
	used atomic.Uint64
}

var _ Executors = (*PageExecutors)(nil)

// usedContexts returns a bit for each context that was used.
func (p *PageExecutors) usedContexts() uint32 {
	if used := p.used.Load(); used != 0 && uint32(used>>32) == uint32(p.Page.Changed()+1) {
		return uint32(used)
	}
	return p.lookAgain()
}

// lookAgain looks at all contexts, and returns what usedContexts does.
func (p *PageExecutors) lookAgain() (used uint32) {
	changes := p.Page.Changed() + 1 // before the contexts: what changes meanwhile is seen the next time
	used = p.Page.UsedContexts()
	p.used.Store(changes<<32 | uint64(used))
	return used
}

// Activity implements [Executors].
func (p *PageExecutors) Activity(now time.Duration) (a Activity) {
	for used := p.usedContexts(); used != 0; used &= used - 1 {
		c := p.Page.Context(bits.TrailingZeros32(used))
		a.Counters = a.Counters.Add(c.Counters())
		if c.State() == ipc.ContextNone {
			continue
		}
		a.Contexts++
		a.MemoryBytes += c.MemoryTaken()
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
func (p *PageExecutors) Outstanding(context int) uint64 {
	if p.usedContexts()&(1<<context) == 0 {
		return 0
	}
	return p.Page.Context(context).Outstanding()
}

// Groups implements [Executors].
func (p *PageExecutors) Groups(f func(accounting.GroupID)) {
	for used := p.usedContexts(); used != 0; used &= used - 1 {
		if id, ok := p.Page.Context(bits.TrailingZeros32(used)).Group(); ok {
			f(accounting.GroupID(id))
		}
	}
}

// Generation implements [Executors].
func (p *PageExecutors) Generation() uint64 { return p.Page.Changed() }

// Publish implements [Executors]. It overwrites whatever the guest's processes, which may write
// anything, have put there.
func (p *PageExecutors) Publish(o Orders) {
	p.Page.SetBill(o.Bill)
	p.Page.SetTerms(o.Terms)
	p.Page.SetKernelTimeLimit(o.TimeLimit)
	p.Page.SetLeaving(o.Latency, o.Suspension)
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
