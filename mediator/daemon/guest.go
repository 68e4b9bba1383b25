package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
	"vgpud/mediator/suspend"
	guestproc "vgpud/mediator/vm"
)

// guest is one guest as the daemon knows it. Its page and link live as long as
// the guest's process.
type guest struct {
	id fairshare.GuestID
	// number is among the guests of its GPU; 0: it has none yet. The service's mu guards it.
	number int
	spec   ipc.Spec // but for Domain and Granted, which are domain below
	pid    int
	began  uint64 // when its process did
	// process is known by a descriptor, which a later process of that number is
	// not taken for.
	process *os.Process
	page    *ipc.ControlPage
	conn    *ipc.Conn
	gone    chan struct{} // closed when the guest is forgotten
	// remains is why what it has left could not be removed, set before gone is closed.
	remains error
	deaf    chan struct{} // closed when its launches are not listened for any more
	hearing sync.WaitGroup
	grip    *suspend.Controller // on its contexts; nil only in tests
	// said is what its process writes, where another daemon started that.
	said *guestproc.Output

	accounts accounts
	// owned are the hardware's channel groups that are taken to be its, and greedy is
	// whether it said to have another guest's. The share's mu guards both.
	owned  []accounting.GroupID
	greedy bool

	dir     string // where its account is kept for the next daemon
	files   statefile.Files
	keeping sync.Mutex // one at a time
	noted   kept       // what is there

	mu          sync.Mutex
	beaten      time.Duration // when it was last shown that the daemon is alive; 0: never
	terms       api.Terms
	domain      ipc.Domain
	used        time.Duration
	suspended   time.Duration // over all finished suspensions
	held        bool
	heldSince   time.Duration
	shown       time.Duration // of the suspensions' time, the last that anybody was told
	shownWork   ipc.Counters  // the largest that anybody was told
	shownBells  uint64
	suspensions uint64
	caused      uint64        // evictions for its sake
	charged     time.Duration // what they cost
	active      bool
	share       float64
	entitled    float64
	// mode and spins are how its executors are to treat launches: what the page says
	// again, where they could write anything.
	mode  ipc.Mode
	spins bool
	polls time.Duration // the most that they may poll in a wait
}

// meet receives a guest's introduction and takes its page over. Who the guest is, it has
// from what was noted: its process may be anybody's by now.
func meet(id fairshare.GuestID, conn *ipc.Conn, noted *kept) (_ *guest, err error) {
	m, err := conn.Receive()
	if err != nil {
		return nil, fmt.Errorf("wait for the guest's introduction: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.CloseFiles())
		}
	}()
	if m.Sender != noted.PID {
		return nil, fmt.Errorf("process %d introduced itself, and %d was noted", m.Sender, noted.PID)
	}
	if m.Kind != ipc.KindHello || len(m.Files) != 1 {
		return nil, fmt.Errorf("first message is %q with %d files, want %q with 1", m.Kind, len(m.Files), ipc.KindHello)
	}
	process, err := noted.find()
	if err != nil {
		return nil, err
	}
	if noted.older {
		// What it says is not noted while it may be refused, or it would be what is
		// expected of it the next time.
		said := *noted
		said.Spec = ipc.Spec{}
		if err := m.Decode(&said.Spec); err != nil || said.Spec.Name != noted.Spec.Name {
			return nil, errors.Join(fmt.Errorf("it says to be guest %q, and is %q: %w", said.Spec.Name, noted.Spec.Name, api.ErrInvalid), err, process.Release())
		}
		if c := said.Spec.Sandbox; c != nil {
			// Another guest's would be given away, or ended, with this one.
			if c.UID = m.SenderUID; c.UID == os.Geteuid() {
				c.UID = 0
			}
			if !inGroup(m.Sender, c.Cgroup) {
				c.Cgroup = ""
			}
		}
		noted = &said
	}
	page, err := ipc.OpenControlPage(m.Files[0])
	m.Files = nil
	if err != nil {
		return nil, errors.Join(err, process.Release())
	}
	g := &guest{
		id: id, spec: noted.Spec, domain: ipc.Domain{Name: noted.Spec.Domain, Granted: noted.Spec.Granted},
		pid: noted.PID, began: noted.Began, process: process, page: page, conn: conn,
		gone: make(chan struct{}), deaf: make(chan struct{}),
	}
	g.mode, g.spins = page.Mode(), page.BusyWait() // until this daemon says otherwise
	return g, nil
}

// malformedMost is how often a guest's process may say what is no message.
const malformedMost = 16

// attend waits for the end of the guest's process, of which the end of its link
// is the last sign, or of the link alone. It reports which it was. told is given
// the handles of contexts, and what says that contexts or channels came or went.
func (g *guest) attend(log *slog.Logger, told func(*ipc.Message)) (ended bool) {
	malformed := 0
	for {
		m, err := g.conn.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case errors.Is(err, net.ErrClosed):
			return false // by this daemon, which goes
		case err != nil && malformed > malformedMost && !errors.Is(err, ipc.ErrMalformed):
			return true // it was killed
		case errors.Is(err, ipc.ErrMalformed) && malformed < malformedMost:
			log.Warn("guest's process says what can't be read", "guest", g.spec.Name, "err", err)
			malformed++
			continue
		case err != nil:
			// Else it would go on, and nothing of it be governed. Its link's end tells that
			// it has ended.
			if malformed <= malformedMost {
				log.Error("guest's link is broken, and it is ended", "guest", g.spec.Name, "err", err)
			}
			malformed = malformedMost + 1
			if err := kill(g.process); err != nil {
				log.Error("end a guest", "guest", g.spec.Name, "err", err)
			}
			continue
		}
		if m.Kind == ipc.KindHandles || m.Kind == ipc.KindChanged {
			told(&m)
			continue
		}
		if err := m.CloseFiles(); err != nil {
			log.Debug("close a guest's files", "err", err)
		}
	}
}

// close lets go of the guest without ending it.
func (g *guest) close() error {
	err := errors.Join(g.conn.Close(), g.page.Close(), g.process.Release())
	if g.said != nil {
		err = errors.Join(err, g.said.Close())
	}
	return err
}

// groups calls f with each channel group that is the guest's now, by what its page says.
func (g *guest) groups(f func(accounting.GroupID)) {
	for i := range ipc.MaxContexts {
		if id, ok := g.page.Context(i).Group(); ok {
			f(accounting.GroupID(id))
		}
	}
}

// work is what of the guest's waits and runs now.
type work struct {
	contexts    int
	groups      int // contexts that have a channel group
	working     int // contexts that have work
	outstanding uint64
	backlog     bool
	counters    ipc.Counters
}

func (g *guest) work() work {
	var w work
	for i := range ipc.MaxContexts {
		c := g.page.Context(i)
		if c.Unused() {
			continue // as most are
		}
		w.counters = w.counters.Add(c.Counters())
		if c.State() == ipc.ContextNone {
			continue
		}
		w.contexts++
		if _, ok := c.Group(); ok {
			w.groups++
		}
		n, backlog := c.Outstanding(), c.Backlog()
		if n == 0 && c.OnGPU() {
			n = 1 // memory that is being filled
		}
		w.outstanding += n
		w.backlog = w.backlog || backlog
		if n > 0 || backlog {
			w.working++
		}
	}
	return w
}

// worked is for how long its contexts had commands under way, in all.
func (g *guest) worked(now time.Duration) (sum time.Duration) {
	for i := range ipc.MaxContexts {
		if c := g.page.Context(i); c.State() != ipc.ContextNone {
			sum += c.Worked(now)
		}
	}
	return sum
}

// amend changes what the guest is granted from the next round on, and reports
// whether that is a change.
func (g *guest) amend(u *api.VMUpdate) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := u.Apply(g.terms)
	if err := t.Check(); err != nil {
		return false, err
	}
	changed = t != g.terms
	g.terms = t
	g.record()
	return changed, nil
}

// domainNow is what is known of the guest's domain.
func (g *guest) domainNow() ipc.Domain {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.domain
}

// setDomain changes what is known of the guest's domain.
func (g *guest) setDomain(change func(*ipc.Domain)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.domain)
}

// charge bills GPU time.
func (g *guest) charge(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used += d
	g.record()
}

// chargeEviction bills an eviction that was for the guest's sake.
func (g *guest) chargeEviction(cost time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.caused++
	g.charged += cost
	g.record()
}

// apply carries out a verdict at now, an instant of clock.Real, and reports
// whether it was a new one.
func (g *guest) apply(v ipc.SuspendWord, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	hold := v == ipc.Suspend
	fresh := hold != g.held
	if fresh && hold {
		g.heldSince = now
		g.suspensions++
	} else if fresh {
		g.suspended += now - g.heldSince
	}
	g.held = hold
	g.record()
	g.alive(now)
	g.page.SetSuspendWord(v)
	g.tell()
	return fresh
}

// standstill is how long the daemon may have been silent without a doubt that the
// guest's executors have gone by its word all the while: they don't after
// [ipc.SuspensionLimit], and both they and the daemon may be late to look at the time
// that they go by.
const standstill = ipc.SuspensionLimit / 2

// beat shows the guest that the daemon is alive at now, an instant of clock.Real.
func (g *guest) beat(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive(now)
}

// alive is beat for one who holds mu. Where the daemon stood still, it no longer relies
// on what it did to the guest's contexts.
func (g *guest) alive(now time.Duration) {
	if now <= g.beaten {
		return // another was faster
	}
	still := g.beaten != 0 && now-g.beaten > standstill
	g.beaten = now
	g.page.Beat(now)
	if still && g.grip != nil {
		g.grip.Invalidate()
	}
}

// treat changes how its executors are to treat launches.
func (g *guest) treat(mode ipc.Mode, spins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode, g.spins = mode, spins
	g.tell()
}

// letPoll changes for how long its executors may poll in a wait.
func (g *guest) letPoll(limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.polls = limit
	g.tell()
}

// tell puts on the page how launches are to be treated, where it says something else.
// The caller holds mu.
func (g *guest) tell() {
	if g.page.Mode() != g.mode {
		g.page.SetMode(g.mode)
	}
	g.page.SetBusyWait(g.spins)
	g.page.SetPollLimit(g.polls)
}

// treated is how its executors were told to treat launches.
func (g *guest) treated() (mode ipc.Mode, spins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode, g.spins
}

// record puts the bill on the page; the caller holds mu.
func (g *guest) record() {
	g.page.SetBill(g.bill())
	g.page.SetTerms(ipc.Terms(g.terms))
}

// bill is what the guest was charged; the caller holds mu.
func (g *guest) bill() ipc.Bill {
	return ipc.Bill{Used: g.used, Suspended: g.suspended, Suspensions: g.suspensions, Caused: g.caused, Charged: g.charged}
}

// heldNow is whether the guest's channels are held.
func (g *guest) heldNow() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// decided is the newest verdict on the guest.
func (g *guest) decided() ipc.SuspendWord {
	if g.heldNow() {
		return ipc.Suspend
	}
	return ipc.Run
}

// termsNow is what the guest is granted.
func (g *guest) termsNow() api.Terms {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.terms
}

// seen records what the last round showed.
func (g *guest) seen(active bool, share, entitled float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active, g.share, g.entitled = active, share, entitled
}

// vm is the guest as the API shows it, at now, on a GPU whose own account is
// counts, but for what its share knows of its launches.
func (g *guest) vm(now time.Duration, counts gpu.Counts) api.VM {
	w := g.work()
	g.mu.Lock()
	defer g.mu.Unlock()
	suspended := g.suspended
	if g.held {
		suspended += now - g.heldSince
	}
	// Both instants are of before somebody had to wait, and what is counted only grows.
	suspended = max(suspended, g.shown)
	g.shown = suspended
	g.shownWork = g.shownWork.Max(w.counters)
	w.counters = g.shownWork
	g.shownBells = max(g.shownBells, g.page.Doorbells())
	v := api.VM{
		Name: g.spec.Name, Domain: g.domain.Name, DomainUUID: g.spec.DomainUUID, GPU: g.spec.GPU.Name,
		Weight: g.terms.Weight, Cap: g.terms.Cap, Guarantee: g.terms.Guarantee, PriorityCeiling: g.terms.PriorityCeiling,
		Socket: g.spec.Socket, Attached: g.page.Attached(), PID: g.pid,
		Contexts: w.contexts, Active: g.active, Suspended: g.held,
		GPUSeconds: g.used.Seconds(), Share: g.share, Entitled: g.entitled,
		SuspendedSeconds: suspended.Seconds(), Suspensions: g.suspensions,
		Kernels: w.counters.Kernels, Errors: w.counters.Errors, CopiedBytes: w.counters.CopiedBytes,
		Commands: w.counters.Commands, Doorbells: g.shownBells, MemoryLimitBytes: g.spec.MemoryLimit,
		KernelTimeLimit: g.spec.KernelTimeLimit,
		Preemption: api.Preemption{
			Evictions: w.counters.Evictions, EvictionSeconds: w.counters.EvictionTime.Seconds(),
			Caused: g.caused, ChargedSeconds: g.charged.Seconds(), Unresponsive: w.counters.Unresponsive, IgnoredPriorities: w.counters.IgnoredPriorities,
		},
	}
	if g.grip != nil {
		v.Control = showControl(g.grip.State())
	}
	v.Peer, v.Confinement = showPeer(g.spec.Peer), showSandbox(g.spec.Sandbox)
	g.groups(func(id accounting.GroupID) { v.Groups = append(v.Groups, uint16(id)) })
	if counts.Busy != nil {
		s := counts.Busy[g.spec.Name].Seconds()
		v.GPUSecondsOwn = &s
	}
	return v
}

// showPeer is who may connect as the API shows it.
func showPeer(p *ipc.Peer) *api.Peer {
	if p == nil {
		return nil
	}
	return &api.Peer{PID: p.PID, PIDFile: p.PIDFile}
}

// showSandbox is how a guest is confined as the API shows it.
func showSandbox(c *ipc.Sandbox) *api.Confinement {
	if c == nil {
		return nil
	}
	return &api.Confinement{UID: c.UID, PrivateDevices: c.PrivateDevices, Devices: c.Devices, Cgroup: c.Cgroup}
}
