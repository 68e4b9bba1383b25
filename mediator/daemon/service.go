package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/audit"
	"vgpud/mediator/budget"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/statefile"
	"vgpud/mediator/suspend"
	"vgpud/mediator/usage"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/web"
)

// keptEvents is how many events there are for readers that come later.
const keptEvents = 1024

// Options configure a service. All fields but Libvirt, Inventory and Files must be set.
type Options struct {
	Config Config
	// Open opens a physical GPU to be watched.
	Open Opener
	// Command returns the process of a guest's virtual GPU, which reads its [StartupConfig] from
	// standard input.
	Command func() *exec.Cmd
	// Features returns what guests' executors implement on a kind of GPU, to be shown; nil shows none.
	Features func(kind string) abi.Features
	// Libvirt connects to libvirt, so that guests follow their domains; nil follows none.
	Libvirt func(ctx context.Context, uri string) (libvirt.Source, error)
	// Inventory calls f, from one goroutine and until ctx ends, with what NVIDIA's driver reports
	// about the host's GPUs; nil reports nothing.
	Inventory func(ctx context.Context, f func(inventory.Message)) error
	// Files is where state is saved for the next daemon; the zero value is the host's file system.
	Files   statefile.Files
	Log     *slog.Logger
	Version string
}

// Opener opens the GPU that a configuration names, to be watched.
type Opener func(ctx context.Context, g ipc.GPU) (gpu.Monitor, error)

// Service is the daemon. New makes it, and Run runs it.
type Service struct {
	o       Options
	clock   clock.Clock
	log     *slog.Logger
	started time.Duration
	devices []*device
	// The polling threads keep to processor cpu if there is another.
	cpu       int
	pinned    bool
	sandboxes *sandbox.Manager
	usage     *usage.Recorder // nil if usage is not recorded
	prestart  prestartPool
	lock      *os.File // of run_dir

	// config is the newest configuration; what can change while the daemon runs is taken from it.
	config    atomic.Pointer[Config]
	reloads   sync.Mutex   // held while the configuration or a policy changes
	heartbeat atomic.Int64 // when keepAlive last did its work
	access    atomic.Pointer[access.Rules]
	recorder  *web.Recorder // of what the page shows; nil without a page
	tls       atomic.Pointer[tls.Config]
	events    *events.Ring
	audit     *audit.Log

	// admission is held while it is decided what a guest may have. It guards pending, the guests
	// that are being created, by name.
	admission sync.Mutex
	pending   map[string]*pendingVM

	mu     sync.RWMutex
	guests map[string]*guest
	// silent are guests of an earlier daemon that were not contacted yet. leaving reports whether
	// no guest is to be adopted any more.
	silent  map[string]*silentGuest
	leaving bool
	// contactLimit is [contactLimit], except in tests that have no use for the wait.
	contactLimit time.Duration
	// watching reports whether the guests were billed for the time without a daemon that answered
	// when this one started.
	watching bool
	// unwatchedSince is when the daemon before this one was last alive, or 0 if that is not known.
	unwatchedSince time.Duration
	// lost are guests whose process ended although nobody asked for that, as they were last.
	lost map[string]*lostVM
	// processes are the guests' processes that this daemon started, by PID.
	processes map[int]*vmProcess
	// intents are the contexts that this daemon disables. leftDisabled are those that an earlier
	// daemon disabled, until their guests are adopted.
	ledger       *budget.Ledger // of budgets
	tasks        *hostTasks
	onHost       uint64 // bytes of host memory for the contexts of each guest that have left their GPUs
	intents      *suspend.Intents
	leftDisabled map[string][]int

	wg   sync.WaitGroup
	quit chan struct{} // closed when the daemon ends
}

var _ api.Host = (*Service)(nil)

// New opens the GPUs.
func New(ctx context.Context, o Options) (_ *Service, err error) {
	s := &Service{
		o: o, clock: clock.Real{}, quit: make(chan struct{}), contactLimit: contactLimit,
		guests: make(map[string]*guest), silent: make(map[string]*silentGuest), pending: make(map[string]*pendingVM),
		lost: make(map[string]*lostVM), processes: make(map[int]*vmProcess),
	}
	s.events = events.NewRing(keptEvents, time.Now())
	s.log = slog.New(events.NewHandler(o.Log.Handler(), s.events))
	s.audit = audit.New(o.Config.Audit.options(s.log))
	s.started = s.clock.Now()
	s.config.Store(&o.Config)
	if o.Config.Web != "" {
		s.recorder = web.NewRecorder(s, s.clock, time.Now)
	}
	if err := errors.Join(s.setAccess(&o.Config.Access), s.loadTLS(&o.Config.TLS)); err != nil {
		return nil, err
	}
	if s.lock, err = takeRunDir(ctx, s.clock, &o.Config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.cpu, s.pinned, err = accounting.SpareCPU(); err != nil {
		return nil, err
	}
	if s.sandboxes, err = newSandboxManager(&o); err != nil {
		return nil, err
	}
	if err := s.openLedger(); err != nil {
		return nil, err
	}
	for _, missing := range s.sandboxes.Missing() {
		s.log.Warn("guests' processes are less confined", "missing", missing)
	}
	if err := s.openDevices(ctx); err != nil {
		return nil, err
	}
	confinement, err := o.Config.Confinement.options()
	if err != nil {
		return nil, err
	}
	s.onHost = onHostOf(confinement.Limits.MemoryBytes)
	if s.tasks, err = newHostTasks(s.devices); err != nil {
		return nil, err
	}
	return s, nil
}

// newSandboxManager probes how guests' processes can be confined on this host.
func newSandboxManager(o *Options) (*sandbox.Manager, error) {
	c, err := o.Config.Confinement.options()
	if err != nil {
		return nil, err
	}
	c.Program = o.Command().Path
	for _, g := range o.Config.GPUs {
		if g.Kind == kindSoft {
			c.Sockets = append(c.Sockets, g.Socket)
		}
	}
	return sandbox.NewManager(c)
}

// Run serves until ctx ends. Then it leaves the guests to themselves with none of them suspended.
// ready is called once the API answers.
func (s *Service) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The sockets come first: a second daemon must not touch the guests of the first.
	listeners, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, s.close())
	}
	page, err := s.listenPage()
	if err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return errors.Join(err, s.close())
	}
	s.openUsage()
	s.restorePolicies()
	s.restoreCordons()
	s.restoreLost()
	if err := errors.Join(s.removeStalePrestarts(), s.adoptAll(ctx)); err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		if page != nil {
			err = errors.Join(err, page.Close())
		}
		return errors.Join(err, s.closeUsage(), s.close())
	}
	servers := s.serve(listeners, page, cancel)
	if s.recorder != nil {
		s.wg.Go(func() { s.recorder.Run(ctx) })
	}
	for _, d := range s.devices {
		s.wg.Go(func() { d.loop.Run(ctx) })
	}
	s.heartbeat.Store(int64(s.clock.Now()))
	s.wg.Go(func() { s.keepAlive(ctx) })
	s.wg.Go(func() { s.saveBills(ctx) })
	s.wg.Go(func() { s.placeTasks(ctx) })
	if s.usage != nil {
		s.wg.Go(func() { s.usage.Run(ctx) })
	}
	s.wg.Go(func() { s.followDomains(ctx) })
	s.wg.Go(func() { newDrainer(s).run(ctx) })
	s.wg.Go(func() { s.followInventory(ctx) })
	s.prestartNext(s.devices[0].ipcGPU())
	s.log.Info("serving", events.Kind(events.DaemonStarted), "version", s.o.Version, "socket", s.o.Config.Socket, "gpus", len(s.devices))
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	return errors.Join(unexpected(context.Cause(ctx)), s.leave(servers))
}

// unexpected returns the cause of an end that was not asked for.
func unexpected(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// leave ends everything but the guests, of which none stays suspended.
func (s *Service) leave(servers []*http.Server) error {
	s.log.Info("the daemon ends, and guests go on", events.Kind(events.DaemonStopping))
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	close(s.quit)
	errs = append(errs, s.closePrestart())
	for _, d := range s.devices {
		d.loop.Stop()
	}
	errs = append(errs, s.closeUsage())
	s.mu.Lock()
	s.leaving = true
	for _, g := range s.guests {
		errs = append(errs, g.conn.Close())
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.saveBudgets()
	errs = append(errs, s.close(), s.audit.Close())
	return errors.Join(errs...)
}

// heartbeatEvery is how often keepAlive does its work: together with the rounds of a GPU whose
// record of context switches is read at an easy pace, in the same wakes. Brisk rounds show more
// often that the daemon is alive; so do listeners, of whose silence launches wait no longer than
// ipc.SilenceLimit.
const heartbeatEvery = 3 * ipc.HeartbeatInterval

// keepAlive shows the guests that the daemon is alive, until ctx ends.
func (s *Service) keepAlive(ctx context.Context) {
	for clock.Tick(ctx, s.clock, heartbeatEvery) == nil {
		now := s.clock.Now()
		s.heartbeat.Store(int64(now))
		s.noteAlive(now)
		for _, d := range s.devices {
			d.loop.Heartbeat()
		}
	}
}

// stuckAfter is how long the heartbeat may stay away before the daemon counts as stuck.
const stuckAfter = 2 * time.Second

// Alive reports whether the heartbeat, which takes the schedulers' locks, came lately.
func (s *Service) Alive() bool {
	return s.clock.Now()-time.Duration(s.heartbeat.Load()) < stuckAfter
}

// close closes the GPUs and leaves run_dir to the next daemon.
func (s *Service) close() error {
	var errs []error
	for _, d := range s.devices {
		errs = append(errs, d.loop.Close())
	}
	errs = append(errs, s.lock.Close())
	return errors.Join(errs...)
}

// device returns the GPU with a name.
func (s *Service) device(name string) (*device, error) {
	names := make([]string, len(s.devices))
	for i, d := range s.devices {
		if d.config.Name == name {
			return d, nil
		}
		names[i] = d.config.Name
	}
	return nil, fmt.Errorf("GPU %q: %w (there are: %s)", name, api.ErrNotFound, strings.Join(names, ", "))
}

// guestDir returns the directory of a guest's sockets and saved state.
func (s *Service) guestDir(name string) string {
	return filepath.Join(s.o.Config.RunDir, "vms", name)
}
