package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/tokenbucket"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
	"vgpud/mediator/statefile"
	"vgpud/mediator/vgpu/abi"
	guestproc "vgpud/mediator/vm"
)

// guest is the daemon's half of a guest: its process and what the API shows. The other half is its
// schedulers'. The pages and conn live as long as the guest's process.
type guest struct {
	// presence is the guest on its own GPU, and away what it is on the others if it floats.
	presence
	away []*presence

	spec    ipc.Spec     // but for Domain and Granted, which are domain below
	log     *slog.Logger // for what the guest's processes can bring about at any rate: it is limited
	pid     int
	started uint64 // when the process began: see startTime
	life    string // the guest's name in the record of usage
	// process is known by a descriptor, so that a later process with that PID is not mistaken for
	// it.
	process *os.Process
	conn    *ipc.Conn
	budget  *budget.Guest
	output  *guestproc.Output // of the guest's process, if an earlier daemon started that
	// lives shows the guest's executors that this daemon lives; nil if it can't: see
	// ipc.LockSuspensionFile.
	lives  *os.File
	gone   chan struct{} // closed when the guest is forgotten
	ending atomic.Bool   // the daemon has asked its process to end
	// cleanupErr is why what the guest left could not be removed. It is set before gone is closed.
	cleanupErr error

	files  statefile.Files
	saving sync.Mutex
	dir    string     // where state is saved; empty once nothing is to be saved any more
	saved  savedState // what is there

	// introduced are the contexts that float, as the guest's process introduced them, and tasks are
	// the host's.
	introduced []ipc.Task
	departed   []ipc.Left  // those of them that had left their GPUs
	savedAway  []savedTask // what was saved of contexts that may be among those
	spares     []ipc.Spare
	grows      []ipc.Grow // and what those asked for that needed more memory
	tasks      *hostTasks
	left       bool // it may have no tasks any more; guarded by tasks.mu
	answers    answers

	mu     sync.Mutex // guards what follows, and of each presence what it says
	domain ipc.Domain
	// mostMemory is the largest limit of GPU memory that the guest has had; 0 is none.
	mostMemory uint64
	// reportedDoorbells is the largest count that was reported, since what a guest's page says may go
	// back.
	reportedDoorbells uint64
	reportedEvents    ipc.EventSums
}

// receiveHello receives the introduction of a guest's process and takes over the control page that
// comes with it. Which guest it is, is known from the saved state: the process may be controlled by
// anybody by now.
func receiveHello(conn *ipc.Conn, saved *savedState) (_ *guest, err error) {
	m, err := conn.Receive()
	if err != nil {
		return nil, fmt.Errorf("wait for the guest's introduction: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.CloseFiles())
		}
	}()
	if m.Sender != saved.PID {
		return nil, fmt.Errorf("process %d introduced itself, and process %d was saved", m.Sender, saved.PID)
	}
	if want := max(len(saved.Spec.Floats), 1); m.Kind != ipc.KindHello || len(m.Files) != want {
		return nil, fmt.Errorf("first message is %q with %d files, want %q with %d", m.Kind, len(m.Files), ipc.KindHello, want)
	}
	process, err := saved.find()
	if err != nil {
		return nil, err
	}
	if saved.older {
		if saved, err = saved.withSpecOf(&m); err != nil {
			return nil, errors.Join(err, process.Release())
		}
	}
	var hello ipc.Hello
	if !saved.older {
		if err := m.Decode(&hello); err != nil {
			return nil, errors.Join(err, process.Release())
		}
	}
	home, away, err := openPages(&saved.Spec, m.Files)
	m.Files = nil
	if err != nil {
		return nil, errors.Join(err, process.Release())
	}
	return &guest{
		presence: home, away: away, introduced: hello.Tasks, departed: hello.Away, grows: hello.Grows, spares: hello.Spares,
		spec: saved.Spec, life: life(saved.PID, saved.Began),
		domain: ipc.Domain{Name: saved.Spec.Domain, Granted: saved.Spec.Granted, Owner: saved.Spec.Owner, Project: saved.Spec.Project},
		pid:    saved.PID, started: saved.Began, process: process, conn: conn, gone: make(chan struct{}),
	}, nil
}

// withSpecOf returns the state with the specification that a process introduces itself with, of
// which an older daemon saved none. It is not saved itself while the process may be refused, or the
// process would be believed the next time.
func (k *savedState) withSpecOf(m *ipc.Message) (*savedState, error) {
	introduced := *k
	introduced.Spec = ipc.Spec{}
	if err := m.Decode(&introduced.Spec); err != nil || introduced.Spec.Name != k.Spec.Name {
		return nil, errors.Join(fmt.Errorf("it introduces itself as guest %q, and is %q: %w", introduced.Spec.Name, k.Spec.Name, api.ErrInvalid), err)
	}
	if c := introduced.Spec.Sandbox; c != nil {
		// With another guest's sandbox, that guest's would be given away, or ended, with this one.
		if c.UID = m.SenderUID; c.UID == os.Geteuid() {
			c.UID = 0
		}
		if !inCgroup(m.Sender, c.Cgroup) {
			c.Cgroup = ""
		}
	}
	return &introduced, nil
}

// maxMalformed is how many messages a guest's process may send that can't be read.
const maxMalformed = 16

// A guest's process sends what follows contexts and channels, at most some 700 messages a second.
// Each may have the daemon decide anew, which all guests share, or save what is granted. So a process
// that sends more is read no faster than one message every messageEvery, after messageBurst at once.
const (
	messageEvery = time.Millisecond
	messageBurst = 4096
)

// receive receives messages until the guest's process ends, of which the end of its connection is
// the last sign, or until this daemon closes the connection. It reports whether the process has
// ended. handle is called with messages about the handles of contexts, and about contexts and
// channels that came or went.
func (g *guest) receive(log *slog.Logger, c clock.Clock, handle func(*ipc.Message)) (ended bool) {
	malformed := 0
	pace := tokenbucket.Bucket{Every: messageEvery, Burst: messageBurst}
	for {
		at := pace.Next(c.Now())
		if err := c.WaitUntil(context.Background(), at); err != nil {
			log.Error("read a guest's messages at a pace", "guest", g.spec.Name, "err", err)
		}
		m, err := g.conn.Receive()
		pace.Take(c.Now())
		switch {
		case errors.Is(err, io.EOF):
			return true
		case errors.Is(err, net.ErrClosed):
			return false
		case err != nil && malformed > maxMalformed && !errors.Is(err, ipc.ErrMalformed):
			return true // it was killed
		case errors.Is(err, ipc.ErrMalformed) && malformed < maxMalformed:
			log.Warn("guest's process sends what can't be read", "guest", g.spec.Name, "err", err)
			malformed++
			continue
		case err != nil:
			// Otherwise it would go on without being governed. The end of its connection tells that
			// it has ended.
			if malformed <= maxMalformed {
				log.Error("guest's connection is broken, and its process is killed", events.Kind(events.GuestKilled), "guest", g.spec.Name, "err", err)
			}
			malformed = maxMalformed + 1
			if err := kill(g.process); err != nil {
				log.Error("end a guest", "guest", g.spec.Name, "err", err)
			}
			continue
		}
		switch m.Kind {
		case ipc.KindHandles, ipc.KindChanged, ipc.KindTask, ipc.KindTaskGone, ipc.KindLeft, ipc.KindWants, ipc.KindGrow,
			ipc.KindSpare, ipc.KindSpareGone:
			handle(&m)
			continue
		}
		if err := m.CloseFiles(); err != nil {
			log.Debug("close a guest's files", "err", err)
		}
	}
}

// close releases what the daemon holds of the guest, which goes on.
func (g *guest) close() error {
	err := errors.Join(g.conn.Close(), g.closePages(), g.process.Release())
	if g.output != nil {
		err = errors.Join(err, g.output.Close())
	}
	if g.lives != nil {
		err = errors.Join(err, g.lives.Close())
	}
	return err
}

// showLife shows the executors of the guest in dir that this daemon lives, until the result is
// closed. It returns nil if it can't; then they take the daemon to be gone as soon as it is silent.
func (s *Service) showLife(dir string) *os.File {
	f, err := ipc.LockSuspensionFile(filepath.Join(dir, guestproc.UntilFile))
	if err != nil {
		s.log.Debug("guest does not know whether the daemon lives", "guest", filepath.Base(dir), "err", err)
		return nil
	}
	return f
}

// terms returns what the guest is granted.
func (g *guest) terms() api.Terms { return api.Terms(g.sched.Terms()) }

// allowMemory notes a new limit of GPU memory; 0 is none.
func (g *guest) allowMemory(limit uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mostMemory = max(g.mostMemory, limit); limit == 0 {
		g.mostMemory = 0
	}
}

// largestLimit returns the largest limit of GPU memory that the guest has had; 0 is none.
func (g *guest) largestLimit() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mostMemory
}

// domainNow returns what is known of the guest's domain.
func (g *guest) domainNow() ipc.Domain {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.domain
}

func (g *guest) unaccountedOf(p *presence) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.unaccounted
}

// setDomain changes what is known of the guest's domain.
func (g *guest) setDomain(change func(*ipc.Domain)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.domain)
}

// vm returns the guest as the API shows it at now. counts are the GPUs' own accounts.
//
// Preconditions: Service.mu is held, so that the pages stay open.
func (g *guest) vm(now time.Duration, counts map[*device]gpu.Counts) api.VM {
	st, launches := g.status(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	work, memory, unaccounted := g.sums(&st)
	g.reportedDoorbells = max(g.reportedDoorbells, g.page.Doorbells())
	v := api.VM{
		Name: g.spec.Name, Domain: g.domain.Name, DomainUUID: g.spec.DomainUUID, Owner: g.domain.Owner, Project: g.domain.Project, Engine: g.spec.Engine,
		Sanction: st.Sanction, GPU: g.spec.GPU.Name, Float: len(g.spec.Floats) > 0,
		Weight: st.Terms.Weight, Cap: st.Terms.Cap, Guarantee: st.Terms.Guarantee, PriorityCeiling: st.Terms.PriorityCeiling, Latency: st.Terms.Latency,
		Socket: g.spec.Socket, Attached: g.page.Attached(), PID: g.pid,
		Contexts: st.Activity.Contexts, Active: st.Active, Suspended: st.Suspended,
		GPUSeconds: st.Bill.Used.Seconds(), Share: st.Share, Entitled: st.Entitled, BusyRatio: st.BusyRatio,
		UnaccountedSeconds: unaccounted.Seconds(), SuspendedSeconds: st.Bill.Suspended.Seconds(), Suspensions: st.Bill.Suspensions,
		Kernels: work.Kernels, Errors: work.Errors, ErrorReasons: apiErrorReasons(&work.ErrorsBy), CopiedBytes: work.CopiedBytes,
		Commands: work.Commands, Doorbells: g.reportedDoorbells, MemoryUsedBytes: memory, MemoryLimitBytes: st.Terms.MemoryLimitBytes,
		KernelTimeLimit: st.TimeLimit,
		Preemption: api.Preemption{
			Evictions: work.Evictions, EvictionSeconds: work.EvictionTime.Seconds(),
			Caused: st.Bill.Caused, ChargedSeconds: st.Bill.Charged.Seconds(), Unresponsive: work.Unresponsive, IgnoredPriorities: work.IgnoredPriorities,
			Launches: api.Launches(launches.counts), Prediction: apiPrediction(launches.accuracy), EvictionTimes: apiHistogram(&launches.evictions),
		},
		Control: g.control(), Peer: apiPeer(g.spec.Peer), Confinement: apiConfinement(g.spec.Sandbox),
	}
	v.EventKernels, v.Events, v.EventsDropped, v.EventsStray = g.eventKernels()
	v.HeldBack = heldBack(&st, v.Attached && g.allDrained())
	v.Budget, v.OwnerBudget = g.budget.Status()
	for _, id := range st.Groups {
		v.Groups = append(v.Groups, uint16(id))
	}
	v.GPUSecondsOwn = g.ownSeconds(counts)
	if v.Float {
		v.OnGPUs = g.onGPUs(now)
	}
	return v
}

// eventKernels returns the guest's event kernels as the API shows them, and the sums over all that
// there were.
func (g *guest) eventKernels() (list []api.EventKernel, ended, dropped, stray uint64) {
	all, sums := g.page.EventKernels()
	for _, k := range all {
		why := abi.EventReasonNone
		if k.Tier == abi.EventHost {
			why = k.Why
		}
		list = append(list, api.EventKernel{
			VM: g.spec.Name, Domain: g.domain.Name, Number: k.Number, Context: k.Context, GPU: g.spec.GPU.Name, Kernel: k.Name, Tier: k.Tier.String(), Reason: why.String(),
			Resident: k.Resident, Events: k.Ended, Dropped: k.Dropped, Stray: k.Stray, P50Seconds: k.P50.Seconds(), P99Seconds: k.P99.Seconds(),
		})
	}
	g.reportedEvents = ipc.EventSums{
		Ended: max(g.reportedEvents.Ended, sums.Ended), Dropped: max(g.reportedEvents.Dropped, sums.Dropped), Stray: max(g.reportedEvents.Stray, sums.Stray),
	}
	return list, g.reportedEvents.Ended, g.reportedEvents.Dropped, g.reportedEvents.Stray
}

func apiErrorReasons(n *[ipc.ErrorReasons]uint64) api.ErrorReasons {
	return api.ErrorReasons{
		Request: n[ipc.ErrorRequest], Memory: n[ipc.ErrorMemory], Module: n[ipc.ErrorModule], Fault: n[ipc.ErrorFault],
		TimeLimit: n[ipc.ErrorTimeLimit], Canceled: n[ipc.ErrorCanceled], Other: n[ipc.ErrorOther],
	}
}

// heldBack returns why a guest is held back; nil if it is not. On a GPU that is drained, no program
// of the guest gets a context.
func heldBack(st *scheduler.GuestStatus, drained bool) *api.HeldBack {
	switch why := st.HeldBack; {
	case why.Reason != "":
		return &api.HeldBack{Reason: why.Reason, For: why.For, Text: why.String()}
	case drained && st.Activity.Contexts == 0:
		return &api.HeldBack{Reason: "drained", Text: "an operator drains its GPU: no program gets a context there"}
	}
	return nil
}

// memoryUsed returns the GPU memory that the guest has taken on a GPU, in bytes. Its processes can
// write any number on its pages, so it is at most what they can have had: a lowered limit takes
// nothing away.
//
// Preconditions: g.mu is held.
func (g *guest) memoryUsed(p *presence, a *scheduler.Activity) uint64 {
	used := min(a.MemoryBytes, api.MaxMemoryLimit)
	for _, most := range []uint64{g.mostMemory, p.device.loop.Properties().MemoryBytes} {
		if most > 0 {
			used = min(used, most)
		}
	}
	return used
}

func apiPeer(p *ipc.Peer) *api.Peer {
	if p == nil {
		return nil
	}
	return &api.Peer{PID: p.PID, PIDFile: p.PIDFile}
}

func apiConfinement(c *ipc.Sandbox) *api.Confinement {
	if c == nil {
		return nil
	}
	return &api.Confinement{UID: c.UID, PrivateDevices: c.PrivateDevices, Devices: c.Devices, PrivateNetwork: c.PrivateNetwork, Cgroup: c.Cgroup}
}
