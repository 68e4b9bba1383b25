package scheduler

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
	"vgpud/mediator/suspend"
)

// Executors are the processes that carry out one guest's commands, as the scheduler sees them.
// [PageExecutors] is the implementation over a guest's control page. A simulation has its own; it
// must not call the scheduler from a method.
type Executors interface {
	// Activity returns what the guest's contexts have done, and what they have under way at now.
	Activity(now time.Duration) Activity
	// Outstanding returns how many commands of a context, 0 to ipc.MaxContexts-1, were given to the
	// GPU and have not ended.
	Outstanding(context int) uint64
	// Groups calls f with each channel group of the GPU that the guest's contexts are now.
	Groups(f func(accounting.GroupID))
	// Generation changes when a context or channel came or went.
	Generation() uint64
	// Publish tells the executors what holds for them from now on.
	Publish(o Orders)
}

// Activity is what a guest's contexts have done and what they have under way.
type Activity struct {
	Contexts int // contexts that exist
	Grouped  int // contexts whose channel group is known
	Working  int // contexts that have work
	// Outstanding counts commands on the GPU; a context that fills memory counts as one.
	Outstanding uint64
	// Backlog reports whether commands wait that were not given to the GPU.
	Backlog  bool
	Counters ipc.Counters // sums over all contexts
	// MemoryBytes is the GPU memory that the contexts have taken, by their executors' count.
	MemoryBytes uint64
	// Worked is how long the contexts had commands on the GPU, in all; 0 if that is unknown.
	Worked time.Duration
}

// Orders are what the scheduler tells a guest's executors.
type Orders struct {
	// Heartbeat is when the daemon last showed that it is alive; 0 is never.
	Heartbeat time.Duration
	Suspend   bool // stop giving commands to the GPU
	// Mode is how launches are treated, BusyWait whether to poll rather than sleep while a kernel
	// may be told to leave, and PollLimit how long to poll in one wait for a launch.
	Mode      ipc.Mode
	BusyWait  bool
	PollLimit time.Duration
	Bill      ipc.Bill
	Terms     ipc.Terms
	// TimeLimit is the GPU time after which a kernel is ended; 0 is none.
	TimeLimit time.Duration
	// Latency is the time within which the guest's kernels should leave the GPU when told to; 0 is
	// the guest's own choice.
	Latency time.Duration
	// Suspension is the time within which the hardware takes a kernel off the GPU by itself; 0 if it
	// does not.
	Suspension time.Duration
}

// Controller takes a guest's contexts off the GPU and sets their time slices. Package suspend has
// the implementation.
type Controller interface {
	// SetDesired changes the desired state of all of the guest's contexts.
	SetDesired(suspend.DesiredState)
	// Invalidate says that the daemon stood still, so that executors may have changed the actual
	// state.
	Invalidate()
}

// Budget is what is left to a guest of its budgets. Package budget has the implementation.
type Budget interface {
	// Charge is told all GPU time that the guest ever used, and how much it will use whatever is
	// decided. It returns what its budgets mean for it from now on.
	Charge(total quota.Measured, coming time.Duration) quota.Sanction
}

// GuestOptions describe a guest. Page or Executors must be set.
type GuestOptions struct {
	Name string
	// Key is the same for a guest that ends and starts anew, so that its cap holds over all of its
	// lives; "" is none.
	Key string
	// PID is the process whose children the guest's executors are. 0 believes what the control page
	// says about processes.
	PID int
	// TimeLimit is how long a kernel may run; 0 is no limit.
	TimeLimit time.Duration
	// Terms are what the guest is granted, and Bill what it was charged by an earlier daemon.
	Terms ipc.Terms
	Bill  ipc.Bill
	// Page is the guest's control page. It must stay open until Remove has returned. Without a page
	// there are no launch slots and no records of work.
	Page *ipc.ControlPage
	// Executors, if set, takes the place of what the page says about contexts.
	Executors Executors
	// Controller, if set, controls the guest's contexts on the hardware.
	Controller Controller
	// Budget, if set, bounds the guest's GPU time.
	Budget Budget
	// Log is for what the guest's own processes can bring about at any rate; nil is the scheduler's.
	Log *slog.Logger
}

// Guest is the scheduler's half of a guest. Its exported methods may be called from any goroutine;
// they take mu alone.
type Guest struct {
	o GuestOptions
	// id and number are set by Add and guarded by the scheduler's roster lock. A holder of the
	// scheduler's mu or the guest's may read id, too: a guest is asked about before it is added.
	id     fairshare.GuestID
	number int // among the guests of its GPU, from 1 on

	removed    chan struct{} // closed by Remove
	listening  sync.WaitGroup
	listens    bool          // it has a listener; guarded by the scheduler's mu
	generation atomic.Uint64 // of the executors, when Heartbeat last saw it

	work workReader // used by the watcher's goroutine alone
	// spare is the process of the context that was made ahead; 0 is none.
	spare atomic.Int64
	// page is what Executors are on the guest's page, nil if the guest has others.
	page *PageExecutors

	// The scheduler's mu guards these: the channel groups that are taken to be the guest's, whether
	// it claimed one that is another guest's, and its recent history.
	owned     []accounting.GroupID
	contested bool
	recent    recent
	// variance bounds the variance of what it was charged since it was added: see [quota.Measured].
	variance float64
	// evictions are those of the guest's launches.
	evictions launchqueue.Histogram
	// bell is the page's count of changed launches when its slots were last read.
	bell uint32
	// turned reports whether the guest had an open turn since its slots were last read.
	turned bool

	mu     sync.Mutex
	orders Orders // with Bill and Terms
	since  time.Duration
	// reported is the longest suspended time that Status has returned.
	reported        time.Duration
	active          bool
	sanction        quota.Sanction // by its budgets; changed with the scheduler's mu held, too
	share, entitled float64
	busy            float64
	held            heldBack
}

// NewGuest returns a guest that no scheduler knows yet.
func NewGuest(o GuestOptions) *Guest {
	g := &Guest{o: o, removed: make(chan struct{})}
	if g.o.Executors == nil {
		g.page = &PageExecutors{Page: o.Page}
		g.o.Executors = g.page
	}
	g.orders.Bill, g.orders.Terms, g.orders.TimeLimit = o.Bill, o.Terms, o.TimeLimit
	if o.Page != nil {
		g.orders.Mode, g.orders.BusyWait = o.Page.Mode(), o.Page.BusyWait() // until a scheduler says otherwise
	}
	return g
}

// ID returns the guest's identifier at its scheduler, 0 before Add.
func (g *Guest) ID() fairshare.GuestID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.id
}

// setID is called once.
//
// Preconditions: the scheduler's roster lock and mu are held.
func (g *Guest) setID(id fairshare.GuestID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = id
}

// publish tells the executors what holds.
//
// Preconditions: g.mu is held.
func (g *Guest) publish() { g.o.Executors.Publish(g.orders) }

// update changes the guest's orders and publishes them.
func (g *Guest) update(change func(*Orders)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.orders)
	g.publish()
}

// current returns the guest's orders.
func (g *Guest) current() Orders {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.orders
}

// Terms returns what the guest is granted.
func (g *Guest) Terms() ipc.Terms { return g.current().Terms }

// SetTerms changes what the guest is granted from the next decision on.
func (g *Guest) SetTerms(t ipc.Terms) { g.update(func(o *Orders) { o.Terms = t }) }

// bounded returns the guest's terms as its budgets leave them.
//
// Preconditions: the scheduler's mu is held.
func (g *Guest) bounded() ipc.Terms { return g.limit(g.Terms()) }

// limit returns terms as the guest's budgets leave them.
//
// Preconditions: the scheduler's mu is held.
func (g *Guest) limit(t ipc.Terms) ipc.Terms {
	if g.sanction == quota.Throttled {
		t.Weight, t.Guarantee, t.PriorityCeiling = min(t.Weight, quota.ThrottledWeight), 0, 0
	}
	return t
}

// TimeLimit returns how long a kernel may run; 0 is no limit.
func (g *Guest) TimeLimit() time.Duration { return g.current().TimeLimit }

// SetTimeLimit changes how long a kernel may run, including those that run already; 0 is no limit.
func (g *Guest) SetTimeLimit(d time.Duration) { g.update(func(o *Orders) { o.TimeLimit = d }) }

// Bill returns what the guest was charged. A suspension counts once it has ended.
func (g *Guest) Bill() ipc.Bill { return g.current().Bill }

// Suspended reports whether the newest verdict suspends the guest.
func (g *Guest) Suspended() bool { return g.current().Suspend }

// charge adds GPU time to the bill, of which executors have counted executed in all, and returns
// what the guest was charged in all.
func (g *Guest) charge(d, executed time.Duration) (used time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.orders.Bill
	if d != 0 || executed > b.Executed { // else the executors know
		b.Used += d
		b.Executed = max(b.Executed, executed)
		g.publish()
	}
	return b.Used
}

// ChargeUnwatched adds GPU time to the bill that no daemon watched.
func (g *Guest) ChargeUnwatched(d time.Duration) { g.update(func(o *Orders) { o.Bill.Used += d }) }

// chargeEviction adds an eviction for the guest's sake to the bill.
func (g *Guest) chargeEviction(cost time.Duration) {
	g.update(func(o *Orders) {
		o.Bill.Caused++
		o.Bill.Charged += cost
	})
}

// setLaunchMode changes how the executors treat launches.
func (g *Guest) setLaunchMode(mode ipc.Mode, busyWait bool) {
	g.update(func(o *Orders) { o.Mode, o.BusyWait = mode, busyWait })
}

// launchMode returns how the executors were told to treat launches.
func (g *Guest) launchMode() (mode ipc.Mode, busyWait bool) {
	o := g.current()
	return o.Mode, o.BusyWait
}

// SetSpare tells of the process that makes, or has made, a context ahead on the GPU, for a context
// of the guest's that is to come. It is not charged for the context, which stays on the engine until
// another one is wanted. That ends when a context claims the process, or the process ends.
func (g *Guest) SetSpare(pid int) { g.spare.Store(int64(pid)) }

// SetSuspended carries out a verdict at now, an instant of the host's clock. It reports whether the
// verdict was a new one.
func (g *Guest) SetSuspended(suspend bool, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := suspend != g.orders.Suspend
	if changed && suspend {
		g.since = now
		g.orders.Bill.Suspensions++
	} else if changed {
		g.orders.Bill.Suspended += now - g.since
		g.held.at = now
	}
	g.orders.Suspend = suspend
	g.heartbeat(now)
	g.publish()
	return changed
}

// stoodStill is how long the daemon may have been silent without a doubt that the guest's executors
// have followed its orders all the while. They don't after ipc.SuspensionLimit, and both sides may
// be late to look at the time that they go by.
const stoodStill = ipc.SuspensionLimit / 2

// Heartbeat shows the executors that the daemon is alive at now, an instant of the host's clock.
func (g *Guest) Heartbeat(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.heartbeat(now) {
		g.publish()
	}
}

// heartbeat notes that the daemon is alive at now, and reports whether that is news. If the daemon
// stood still, the controller no longer relies on what it did to the guest's contexts.
//
// Preconditions: g.mu is held.
func (g *Guest) heartbeat(now time.Duration) bool {
	before := g.orders.Heartbeat
	if now <= before {
		return false // another goroutine was faster
	}
	g.orders.Heartbeat = now
	if before != 0 && now-before > stoodStill && g.o.Controller != nil {
		g.o.Controller.Invalidate()
	}
	return true
}

// suspendedSince returns when the present suspension began, if there is one.
func (g *Guest) suspendedSince() (at time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.orders.Suspend
}

// setShare notes what the last round showed.
func (g *Guest) setShare(active bool, share, entitled, busy float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active, g.share, g.entitled, g.busy = active, share, entitled, busy
}

// setSanction notes what the guest's budgets mean for it.
//
// Preconditions: the scheduler's mu is held.
func (g *Guest) setSanction(s quota.Sanction) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sanction = s
}

// Activity returns what the guest's contexts have done, and their memory; not what they have under
// way. Its page must stay open meanwhile.
func (g *Guest) Activity() Activity { return g.o.Executors.Activity(0) }

// GuestStatus is what there is to report about a guest.
type GuestStatus struct {
	Terms     ipc.Terms
	TimeLimit time.Duration // of a kernel; 0 is none
	// Bill includes the present suspension. None of its sums ever goes back.
	Bill              ipc.Bill
	Active, Suspended bool
	// HeldBack is why the guest is suspended, or its launches wait, or did so just before.
	HeldBack HeldBack
	// Sanction is what the guest's budgets mean for it.
	Sanction quota.Sanction
	// Share is the guest's part of the GPU time that all guests used lately, and Entitled the part
	// that its terms entitle it to among the active guests.
	Share, Entitled float64
	// BusyRatio is the part of the GPU's time that the guest used lately.
	BusyRatio float64
	Activity  Activity
	Groups    []accounting.GroupID
}

// Status returns what there is to report about the guest at now. Its page must stay open meanwhile.
func (g *Guest) Status(now time.Duration) GuestStatus {
	s := GuestStatus{Activity: g.o.Executors.Activity(now)}
	g.o.Executors.Groups(func(id accounting.GroupID) { s.Groups = append(s.Groups, id) })
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Terms, s.Bill, s.TimeLimit = g.orders.Terms, g.orders.Bill, g.orders.TimeLimit
	s.Sanction, s.HeldBack = g.sanction, g.heldBackAt(now)
	s.Active, s.Suspended, s.Share, s.Entitled, s.BusyRatio = g.active, g.orders.Suspend, g.share, g.entitled, g.busy
	if g.orders.Suspend {
		s.Bill.Suspended += now - g.since
	}
	// now may be from before a wait for mu.
	g.reported = max(g.reported, s.Bill.Suspended)
	s.Bill.Suspended = g.reported
	return s
}
