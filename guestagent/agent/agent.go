package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/guestagent/sysfs"
)

// Options configure an [Agent].
type Options struct {
	PCI driver.PCI
	// GID is the group that may open devices and the agent's socket; negative means only root.
	GID int
	// NoCheck skips the check that a new device computes correctly.
	NoCheck bool
	Log     *slog.Logger
	// Events opens the kernel's events about devices; nil means this machine's. Run calls it once.
	Events func() (Events, error)
	// Open opens a device to share it; nil opens it as PCI says.
	Open func(ctx context.Context, address string) (Lender, error)
	// Alive is called at least every Heartbeat as long as the agent responds; it may be nil.
	Alive     func()
	Heartbeat time.Duration
	// Kernels is what programs learned about kernels, saved now and then; nil keeps it only in
	// memory.
	Kernels *cache.File
	// Preempt says how programs that share a device through the agent make their kernels
	// preemptible.
	Preempt allot.Preempt
	// PerUser bounds what the programs of one user have of a device together. Root is not bound.
	PerUser allot.Limits
}

// Events is a stream of the kernel's events about devices, as [sysfs.Uevents].
type Events interface {
	Next(ctx context.Context) (sysfs.Event, error)
	Close() error
}

// Device is a virtual GPU as the agent sees it.
type Device struct {
	Function
	// State is "preparing", "ready", "polling" (ready, without interrupts) or "failed"; Since is
	// when it became so.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Check is the result of the last check, absent before it.
	Check *CheckResult `json:"check,omitempty"`
	// Tenants are the programs that share the device through the agent.
	Tenants []Tenant `json:"tenants"`

	failures int    // consecutive ones
	instance uint64 // distinguishes devices that were at the same address in turn
}

// The states of a device.
const (
	StatePreparing = "preparing"
	StateReady     = "ready"
	StatePolling   = "polling"
	StateFailed    = "failed"
)

// Agent prepares virtual GPUs and shares them. Its methods may be called from several goroutines.
type Agent struct {
	o Options

	mu           sync.Mutex
	devices      map[string]*Device       // by address
	opened       map[string]*sharedDevice // devices that tenants use, by address
	opening      map[string]*sync.Mutex
	stateChanged chan struct{} // closed and replaced when a device's state changes
	connections  map[int]int   // by their users

	changed   chan struct{} // holds a value if devices may have come or gone
	preparers sync.WaitGroup
	ended     bool // no device is added any more; guarded by mu
	tenants   sync.WaitGroup

	learned *cache.Cache
	missing missing
}

// New returns an agent, which does nothing before Run.
func New(o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = func() (Events, error) { return sysfs.ListenUevents() }
	}
	if o.Open == nil {
		p := o.PCI
		p.BusyTimeout = -1
		o.Open = func(ctx context.Context, address string) (Lender, error) { return driver.OpenPCI(ctx, p, address) }
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	learned := cache.New()
	if o.Kernels != nil {
		learned = o.Kernels.Cache
	}
	return &Agent{o: o, learned: learned, devices: map[string]*Device{}, opened: map[string]*sharedDevice{}, opening: map[string]*sync.Mutex{}, connections: map[int]int{}, stateChanged: make(chan struct{}), changed: make(chan struct{}, 1)}
}

// Run prepares the devices that exist and those that appear, until ctx ends. It calls ready once,
// when the first have been prepared.
func (a *Agent) Run(ctx context.Context, ready func()) error {
	// Listen before scanning, so that no device is missed in between.
	stopped, err := a.listen(ctx)
	if err != nil {
		return err
	}
	defer stopped()
	defer a.save()
	defer a.end()
	if err := a.rescan(ctx); err != nil {
		return err
	}
	a.preparers.Wait()
	if len(a.Devices()) == 0 {
		a.o.Log.Info("no virtual GPU yet; waiting for one", "ids", driver.IDs.String())
	}
	ready()
	beat := time.NewTicker(a.o.Heartbeat)
	defer beat.Stop()
	for {
		if a.o.Alive != nil {
			a.o.Alive()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			a.retry(ctx)
			a.save()
		case <-a.changed:
			if err := a.rescan(ctx); err != nil && ctx.Err() == nil {
				a.o.Log.Error("scan for virtual GPUs", "err", err)
			}
		}
	}
}

// end waits for the devices that are being prepared and lets no others start.
func (a *Agent) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.preparers.Wait()
}

// rescanEvery is how often the agent scans without events of the kernel.
const rescanEvery = 5 * time.Second

// requestRescan makes Run scan for devices that came or went.
func (a *Agent) requestRescan() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// listen requests a rescan whenever the kernel reports that devices came or went. The function that
// it returns ends that.
func (a *Agent) listen(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	stop := func() { cancel(); done.Wait() }
	events, err := a.o.Events()
	if err != nil {
		a.o.Log.Warn("no events from the kernel; scanning periodically", "every", rescanEvery, "err", err)
		done.Go(func() {
			t := time.NewTicker(rescanEvery)
			defer t.Stop()
			for {
				select {
				case <-t.C:
					a.requestRescan()
				case <-ctx.Done():
					return
				}
			}
		})
		return stop, nil
	}
	done.Go(func() {
		defer func() { _ = events.Close() }()
		for {
			e, err := events.Next(ctx)
			switch {
			case errors.Is(err, sysfs.ErrMissed):
				a.requestRescan()
			case err != nil:
				if ctx.Err() == nil {
					a.o.Log.Error("listen to the kernel's events", "err", err)
				}
				return
			case e.Action == "add" || e.Action == "remove":
				a.requestRescan()
			}
		}
	})
	return stop, nil
}

// rescan compares the devices that exist with those that are known.
func (a *Agent) rescan(ctx context.Context) error {
	found, err := a.o.PCI.Functions()
	if err != nil {
		return err
	}
	a.forget(found)
	for _, f := range found {
		if d := a.register(f); d != nil {
			a.preparers.Go(func() { a.prepare(ctx, d, f) })
		}
	}
	return nil
}

// forget removes devices that no longer exist, even if others are at their addresses.
func (a *Agent) forget(found []sysfs.Function) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for address, d := range a.devices {
		if !slices.ContainsFunc(found, func(f sysfs.Function) bool { return f.Address == address && f.Instance == d.instance }) {
			delete(a.devices, address)
			a.notifyState()
			a.o.Log.Info("virtual GPU unplugged", "device", address)
		}
	}
}

// register adds a device, and returns it if it is new.
func (a *Agent) register(f sysfs.Function) *Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.devices[f.Address] != nil {
		return nil
	}
	d := &Device{Function: inspect(a.o.PCI, f), State: StatePreparing, Since: time.Now(), instance: f.Instance}
	a.devices[f.Address] = d
	return d
}

// errPollingConfigured is why a device is polled although it may have interrupts.
var errPollingConfigured = errors.New("the agent is configured to poll")

// retryAfter is how long after its first failure a device is tried again; the time doubles with
// each, up to maxRetryAfter.
const (
	retryAfter    = 10 * time.Second
	maxRetryAfter = 5 * time.Minute
)

// retry prepares failed devices again when it is time: their host may have been in trouble.
func (a *Agent) retry(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.devices {
		if d.State == StateFailed && time.Since(d.Since) >= min(retryAfter<<min(d.failures, 10), maxRetryAfter) {
			a.prepareAgain(ctx, d)
		}
	}
}

// prepareAgain prepares a device again; mu is held.
func (a *Agent) prepareAgain(ctx context.Context, d *Device) {
	f, err := (sysfs.FS{Root: a.o.PCI.Root}).Function(d.Address)
	if err != nil || a.ended {
		return // the device or the agent is going away
	}
	d.State, d.Since = StatePreparing, time.Now()
	a.preparers.Go(func() { a.prepare(ctx, d, f) })
}

// prepare makes a new device ready: bound to vfio-pci if possible, accessible to the group,
// checked.
func (a *Agent) prepare(ctx context.Context, d *Device, f sysfs.Function) {
	log := a.o.Log.With("device", f.Address)
	if d.failures == 0 {
		log.Info("virtual GPU found", "bar2", f.BARs[2].Bytes)
	} else {
		log.Info("virtual GPU is tried again", "failures", d.failures)
	}
	if err := driver.CheckRoom(f); err != nil {
		log.Error("virtual GPU can't be used", "err", err)
		a.setState(d, StateFailed, err, nil)
		return
	}
	state := StateReady
	node, why := "", errPollingConfigured
	if a.o.PCI.Access != driver.AccessPolling {
		_, node, why = a.o.PCI.Prepare(f.Address)
	}
	if why != nil {
		state = StatePolling
		log.Warn("no interrupts; programs will poll", "err", why)
	}
	if err := a.open(f.Address, node); err != nil {
		log.Error("permissions", "err", err)
		a.setState(d, StateFailed, err, nil)
		return
	}
	if a.o.NoCheck {
		log.Info("virtual GPU ready", "state", state)
		a.setState(d, state, why, nil)
		return
	}
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r := CheckBus(limited, f.Address, func(ctx context.Context, address string) (driver.Bus, error) {
		return a.o.Open(ctx, address)
	}, CheckOptions{Count: 20})
	switch {
	case ctx.Err() != nil: // the agent ends
	case r.OK:
		log.Info("virtual GPU ready", "state", state, "gpu", r.GPU, "vectors", r.Vectors, "launch_p50", r.Launch.P50)
		a.setState(d, state, why, &r)
	case errors.Is(r.err, driver.ErrBusy):
		log.Info("virtual GPU ready, in use already, not checked", "state", state)
		a.setState(d, state, why, nil)
	default:
		log.Error("virtual GPU failed its check", "err", r.Error)
		a.setState(d, StateFailed, r.err, &r)
	}
}

// notifyState wakes the goroutines that wait for a device's state; mu is held.
func (a *Agent) notifyState() {
	close(a.stateChanged)
	a.stateChanged = make(chan struct{})
}

// setState records a device's state.
func (a *Agent) setState(d *Device, state string, problem error, check *CheckResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyState()
	if f, err := (sysfs.FS{Root: a.o.PCI.Root}).Function(d.Address); err == nil {
		d.Function = inspect(a.o.PCI, f)
	}
	d.State, d.Since, d.Check = state, time.Now(), check
	if d.failures++; state != StateFailed {
		d.failures = 0
	}
	if problem != nil {
		d.Problem = problem.Error()
	}
}

// open gives the group access to what it takes to open a device: the node of its IOMMU group or, if
// it is polled, its BARs.
func (a *Agent) open(address, node string) error {
	if a.o.GID < 0 {
		return nil
	}
	nodes := []string{node}
	if node == "" {
		files := sysfs.FS{Root: a.o.PCI.Root}
		nodes = []string{files.ResourcePath(address, 0), files.ResourcePath(address, 2)}
		if err := files.Enable(address); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := errors.Join(os.Chown(n, -1, a.o.GID), os.Chmod(n, 0o660)); err != nil {
			return fmt.Errorf("open %s to group %d: %w", n, a.o.GID, err)
		}
	}
	return nil
}

// Devices returns all devices, ordered by address.
func (a *Agent) Devices() []Device {
	a.mu.Lock()
	list := make([]Device, 0, len(a.devices))
	shared := make(map[string]*sharedDevice, len(a.opened))
	for address, d := range a.devices {
		list = append(list, *d)
		shared[address] = a.opened[address]
	}
	a.mu.Unlock()
	// A device that does not answer holds up nobody else.
	for i := range list {
		list[i].Tenants = shared[list[i].Address].tenantsOf()
	}
	slices.SortFunc(list, func(x, y Device) int { return strings.Compare(x.Address, y.Address) })
	return list
}
