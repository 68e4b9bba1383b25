package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// Options configure a guest's process.
type Options struct {
	Spec ipc.Spec
	// Sockets are the sockets to listen on. Run closes them.
	Sockets *Sockets
	// Owner, if set, owns the vfio-user socket: the VMM's user.
	Owner *vfiouser.Owner
	// Command returns a new executor process; descriptor 3 is its end of the connection.
	Command func() *exec.Cmd
	// PollWindow is how long an executor polls its rings before it sleeps, and Features are the
	// features that executors implement: the guest is told of both.
	PollWindow time.Duration
	Features   abi.Features
	Log        *slog.Logger
	// Stderr, if set, is Log's destination, which a new daemon may replace.
	Stderr  *Stderr
	Version string
	// Ready is called when the sockets are served.
	Ready func() error
}

// Run serves the guest's virtual GPU until ctx ends or a daemon asks it to end.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, o.Sockets.Close()) }()
	log := slog.New(LimitLog(o.Log.Handler(), clock.Real{})).With("guest", o.Spec.Name)
	// The daemons' connections are closed last: their end means the guest's end to a daemon.
	daemons := &control{log: log, stderr: o.Stderr}
	defer daemons.close()

	pages := make([]*ipc.ControlPage, max(len(o.Spec.Floats), 1))
	for i := range pages {
		page, err := ipc.NewControlPage()
		if err != nil {
			return err
		}
		pages[i] = page
		defer func() { err = errors.Join(err, page.Close()) }()
	}
	home, err := homeOf(&o.Spec)
	if err != nil {
		return err
	}
	if len(o.Spec.Floats) > 0 {
		// An event kernel's number is its place in the event area and on one control page.
		o.Features = o.Features&^(abi.FeatureEventKernels|abi.FeatureEventDoorbells) | abi.FeatureFloating
		if o.Spec.Alike {
			o.Features |= abi.FeatureAlike
		}
	}
	b := newExecutors(o.Spec, pages[home], o.Command, clock.Real{}, log)
	b.pages, b.homeGPU = pages, home
	dev, err := vgpu.New(vgpu.Config{
		SharedBytes: int64(o.Spec.BAR2Bytes), MemoryBytes: o.Spec.MemoryLimit,
		PollWindow: o.PollWindow, Features: o.Features, UUID: uuidOf(&o.Spec, machineID()),
		Leaving: func() (latency, suspension time.Duration) { return leaving(pages) },
	}, b, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	defer b.wait()
	daemons.clock, daemons.changes = clock.Real{}, make(chan struct{}, 1)
	b.daemons, b.until = daemons, o.Sockets.Until
	b.use(dev)

	if err := o.Ready(); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	log.Info("virtual GPU ready", "socket", o.Spec.Socket, "gpu", o.Spec.GPU.Name)

	daemons.hello, daemons.pages, daemons.quit, daemons.drain = ipc.Hello{Version: o.Version}, pages, cancel, b.drain
	daemons.place, daemons.leave, daemons.lend, daemons.alone = b.place, b.leave, b.lend, b.waitForDaemon
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { daemons.serve(ctx, o.Sockets.Control) })
	server := &vfiouser.Server{Device: attachment{dev, pages}, Check: admit(&o.Spec, o.Owner).check, Log: log}
	err = server.Serve(ctx, o.Sockets.VMM)
	cancel()
	n := dev.Stats()
	log.Info("virtual GPU ends", "resets", n.Resets, "refused", n.Refused, "bad_accesses", n.BadAccesses, "stray_doorbells", n.StrayDoorbells)
	return err
}

// leaving returns what the daemon has said of kernels that leave a GPU: the least latency on any of the
// guest's GPUs, and the hardware's suspension if all have it.
func leaving(pages []*ipc.ControlPage) (latency, suspension time.Duration) {
	for i, p := range pages {
		l, s := p.Leaving()
		if l > 0 && (latency == 0 || l < latency) {
			latency = l
		}
		if i == 0 || s < suspension {
			suspension = s
		}
	}
	return latency, suspension
}

// attachment records on the control pages whether a VMM is connected.
type attachment struct {
	*vgpu.Device
	pages []*ipc.ControlPage
}

// Attach implements [vfiouser.Device].
func (a attachment) Attach(s *vfiouser.Session) error {
	if err := a.Device.Attach(s); err != nil {
		return err
	}
	a.set(true)
	return nil
}

// Detach implements [vfiouser.Device].
func (a attachment) Detach(s *vfiouser.Session) {
	a.Device.Detach(s)
	a.set(false)
}

func (a attachment) set(attached bool) {
	for _, page := range a.pages {
		page.SetAttached(attached)
		page.AddChange()
	}
}
