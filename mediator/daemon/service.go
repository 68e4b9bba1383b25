package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/statefile"
	"vgpud/mediator/suspend"
)

// Options are what a service works with. All fields but Libvirt,
// Inventory and Files must be set.
type Options struct {
	Config Config
	// Open opens a physical GPU to be watched.
	Open Opener
	// Command makes the process of a guest's virtual GPU, which gets its
	// [Birth] on standard input.
	Command func() *exec.Cmd
	// Libvirt connects to libvirt, for the domains' sake that guests are; nil:
	// none are followed.
	Libvirt func(ctx context.Context, uri string) (libvirt.Source, error)
	// Inventory hands on what NVIDIA's driver says of the host's GPUs, from one
	// goroutine, until ctx ends; nil: nothing is heard.
	Inventory func(ctx context.Context, f func(inventory.Message)) error
	// Files is where what the next daemon goes by is kept; the zero value: on the host.
	Files   statefile.Files
	Log     *slog.Logger
	Version string
}

// Opener opens the GPU that a configuration names, to be watched.
type Opener func(ctx context.Context, g ipc.GPU) (gpu.Monitor, error)

// Service is the daemon. It is made by New and run by Run.
type Service struct {
	o      Options
	clock  clock.Clock
	log    *slog.Logger
	since  time.Duration
	shares []*share
	// The polling threads keep to processor cpu where there is another.
	cpu       int
	pinned    bool
	sandboxes *sandbox.Manager // of guests' processes
	nursery   nursery

	// config is the newest configuration, which holds for what can change.
	config  atomic.Pointer[Config]
	reloads sync.Mutex   // one at a time
	beaten  atomic.Int64 // when beat last did

	// admission is held while it is decided what a guest may have. unborn are
	// those that are being made, by name.
	admission sync.Mutex
	unborn    map[string]*unborn

	mu     sync.RWMutex // a guest's page may be used while it is held
	guests map[string]*guest
	onGPU  map[string][]*guest // the same by GPU, in order of id; replaced, never changed
	lastID fairshare.GuestID
	// silent are the guests of an earlier daemon that this one has not met. leaves is set
	// when nobody is to be met any more.
	silent map[string]*silent
	leaves bool

	// intents are the contexts that the daemon disables, and left those that one before
	// it did, while guests are adopted.
	intents *suspend.Intents
	left    map[string][]int

	wg   sync.WaitGroup
	quit chan struct{} // closed when the daemon ends
}

var _ api.Host = (*Service)(nil)

// New opens the GPUs.
func New(ctx context.Context, o Options) (_ *Service, err error) {
	s := &Service{o: o, clock: clock.Real{}, log: o.Log, guests: make(map[string]*guest), silent: make(map[string]*silent), onGPU: make(map[string][]*guest), unborn: make(map[string]*unborn), quit: make(chan struct{})}
	s.since = s.clock.Now()
	s.config.Store(&o.Config)
	if s.cpu, s.pinned, err = accounting.SpareCPU(); err != nil {
		return nil, err
	}
	if s.sandboxes, err = newSandboxManager(&o); err != nil {
		return nil, err
	}
	for _, missing := range s.sandboxes.Missing() {
		s.log.Warn("guests' processes are less confined", "missing", missing)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeGPUs())
		}
	}()
	for _, c := range o.Config.GPUs {
		sh, err := s.open(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", c.Name, err)
		}
		s.shares = append(s.shares, sh)
	}
	return s, nil
}

// newSandboxManager finds out how guests' processes can be confined here.
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

// open opens one GPU and prepares to watch it.
func (s *Service) open(ctx context.Context, c GPUConfig) (*share, error) {
	sh := &share{
		config: c, accounting: c.Accounting, control: c.control(), maxOverhead: c.MaxOverhead,
		clock: s.clock, log: s.log, recent: make(map[fairshare.GuestID]*recent),
	}
	sh.guests = func(f func([]*guest)) { s.ofGPU(c.Name, f) }
	sh.launching.deadline, sh.launching.spin = s.o.Config.evictionDeadline(), newSpinner(&c)
	if err := sh.setPolicy(c.Policy); err != nil {
		return nil, err
	}
	o, err := s.openGPU(ctx, sh)
	if err != nil {
		return nil, err
	}
	sh.opened, sh.planner = o, accounting.NewPlanner(o.watch)
	return sh, nil
}

// ofGPU calls f with a GPU's guests by id, while none can go away.
func (s *Service) ofGPU(name string, f func([]*guest)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f(s.onGPU[name])
}

// sortGuests has ofGPU find a GPU's guests. The caller holds mu, and has changed
// guests.
func (s *Service) sortGuests(gpu string) {
	var gs []*guest
	for _, g := range s.guests {
		if g.spec.GPU.Name == gpu {
			gs = append(gs, g)
		}
	}
	slices.SortFunc(gs, func(a, b *guest) int { return int(a.id) - int(b.id) })
	number(gs)
	s.onGPU[gpu] = gs
}

// Run serves until ctx ends, then leaves the guests to themselves with nobody
// held. ready is called when the API answers.
func (s *Service) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// First of all, since of two daemons one must not touch the other's guests.
	listeners, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, s.closeGPUs())
	}
	s.recallPolicies()
	if err := errors.Join(s.sweepNursery(), s.adoptAll(ctx)); err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return errors.Join(err, s.closeGPUs())
	}
	servers := s.serve(listeners, cancel)
	for _, sh := range s.shares {
		s.wg.Go(func() { s.attend(ctx, sh) })
		s.wg.Go(func() { sh.keepTime(ctx) })
	}
	s.beaten.Store(int64(s.clock.Now()))
	s.wg.Go(func() { s.beat(ctx) })
	s.wg.Go(func() { s.keepAccounts(ctx) })
	s.wg.Go(func() { s.followDomains(ctx) })
	s.wg.Go(func() { s.followInventory(ctx) })
	s.fill(s.shares[0].link())
	s.log.Info("serving", "socket", s.o.Config.Socket, "gpus", len(s.shares))
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	return errors.Join(asked(context.Cause(ctx)), s.leave(servers))
}

// asked drops the cause of an end that was asked for.
func asked(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// serve answers questions on the listeners. The first is the API's; what listens
// on TCP answers the collector of metrics alone.
func (s *Service) serve(listeners []net.Listener, fail func(error)) []*http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s})
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	var servers []*http.Server
	for i, l := range listeners {
		h := api.Handler(s, metrics, s.log)
		if i > 0 {
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", metrics)
			h = mux
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, server)
		s.wg.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serve the API: %w", err))
			}
		})
	}
	return servers
}

// leave ends everything but the guests, of whom nobody stays held.
func (s *Service) leave(servers []*http.Server) error {
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	close(s.quit)
	errs = append(errs, s.empty())
	for _, sh := range s.shares {
		sh.leave()
	}
	s.mu.Lock()
	s.leaves = true
	for _, g := range s.guests {
		errs = append(errs, g.conn.Close())
	}
	s.mu.Unlock()
	s.wg.Wait()
	errs = append(errs, s.closeGPUs())
	return errors.Join(errs...)
}

// beatEvery is how often beat looks: with the rounds of a GPU whose record is read at an
// easy pace, in the same wakes. Brisk rounds show more often that the daemon is alive,
// and so do listeners where launches wait for it, who would take [ipc.SilenceLimit]
// for its end.
const beatEvery = 3 * ipc.HeartbeatInterval

// beat shows the guests that the daemon is alive, and looks for contexts that
// came or went, which may call for a decision.
func (s *Service) beat(ctx context.Context) {
	changes, newer := make(map[fairshare.GuestID]uint64), make(map[fairshare.GuestID]uint64)
	for clock.Tick(ctx, s.clock, beatEvery) == nil {
		s.beaten.Store(int64(s.clock.Now()))
		for _, sh := range s.shares {
			moved := fairshare.GuestID(0)
			sh.guests(func(gs []*guest) {
				now := s.clock.Now()
				for _, g := range gs {
					g.beat(now)
					newer[g.id] = g.page.Changed()
					if newer[g.id] != changes[g.id] {
						moved = g.id
					}
				}
			})
			if moved != 0 {
				sh.changed(moved)
			}
		}
		changes, newer = newer, changes
		clear(newer)
	}
}

// A daemon that was killed may have forked a process just before, which has its socket until
// it executes its program. Who listens for longer is another daemon.
const (
	lastEvery = 20 * time.Millisecond
	lastTries = 25
)

// alone waits until nobody listens on the socket at path.
func alone(ctx context.Context, c clock.Clock, path string) error {
	for try := 1; ; try++ {
		conn, err := net.Dial("unix", path)
		switch {
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil:
			err = conn.Close()
		case errors.Is(err, unix.EAGAIN):
			err = nil // somebody listens, and is busy
		}
		if err != nil {
			return fmt.Errorf("look whether another daemon listens: %w", err)
		}
		if try == lastTries {
			return fmt.Errorf("another daemon listens on %s", path)
		}
		if err := clock.Tick(ctx, c, lastEvery); err != nil {
			return err
		}
	}
}

// listen makes the API's socket, which only its owner may use, and the one for
// metrics where that is wanted.
func (s *Service) listen(ctx context.Context) ([]net.Listener, error) {
	path := s.o.Config.Socket
	if err := alone(ctx, s.clock, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale socket: %w", err)
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen for questions: %w", err)
	}
	if s.o.Config.Metrics == "" {
		return []net.Listener{l}, nil
	}
	m, err := net.Listen("tcp", s.o.Config.Metrics)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the collector of metrics: %w", err), l.Close())
	}
	return []net.Listener{l, m}, nil
}

func (s *Service) closeGPUs() error {
	var errs []error
	for _, sh := range s.shares {
		o := sh.open()
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}

// share finds a GPU.
func (s *Service) share(name string) (*share, error) {
	names := make([]string, len(s.shares))
	for i, sh := range s.shares {
		if sh.config.Name == name {
			return sh, nil
		}
		names[i] = sh.config.Name
	}
	return nil, fmt.Errorf("GPU %q: %w (there are: %s)", name, api.ErrNotFound, strings.Join(names, ", "))
}

// guestDir is where a guest's sockets are.
func (s *Service) guestDir(name string) string {
	return filepath.Join(s.o.Config.RunDir, "vms", name)
}
