package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"

	"vgpud/clock"
	"vgpud/mediator/executor"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/vfio/vfiouser"
)

// Options are what a guest's process works with.
type Options struct {
	Spec ipc.Spec
	// Sockets are what it listens on. Run closes them.
	Sockets *Sockets
	// Owner, if set, is whom the vfio-user socket belongs to: the VMM's user.
	Owner *vfiouser.Owner
	// Command makes an executor's process, whose end of the link is its file
	// descriptor 3.
	Command func() *exec.Cmd
	Log     *slog.Logger
	// Stderr, if set, is what Log writes to, and another daemon may replace.
	Stderr  *Stderr
	Version string
	// Ready is called when the sockets are answered.
	Ready func() error
}

// Run serves the guest's virtual GPU until ctx ends or the daemon says so.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, o.Sockets.Close()) }()
	log := slog.New(Quiet(o.Log.Handler(), clock.Real{})).With("guest", o.Spec.Name)
	// The daemons' links are closed last: to a daemon their end is the guest's.
	daemons := &control{log: log, stderr: o.Stderr}
	defer daemons.close()

	page, err := ipc.NewPage()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()

	b := newExecutors(o.Spec, page, o.Command, clock.Real{}, log)
	dev, err := vgpu.New(vgpu.Config{
		SharedBytes: int64(o.Spec.BAR2Bytes), MemoryBytes: o.Spec.MemoryLimit,
		PollWindow: executor.PollWindow, Features: executor.Features,
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
		return fmt.Errorf("report to be ready: %w", err)
	}
	log.Info("virtual GPU ready", "socket", o.Spec.Socket, "gpu", o.Spec.GPU.Name)

	daemons.hello, daemons.page, daemons.quit = ipc.Hello{Version: o.Version}, page, cancel
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { daemons.serve(ctx, o.Sockets.Control) })
	server := &vfiouser.Server{Device: attachment{dev, page}, Check: admit(&o.Spec, o.Owner).check, Log: log}
	err = server.Serve(ctx, o.Sockets.VMM)
	cancel()
	log.Info("virtual GPU ends")
	return err
}

// attachment notes on the guest's page whether a VMM is connected.
type attachment struct {
	*vgpu.Device
	page *ipc.Page
}

// Attach implements [vfiouser.Device].
func (a attachment) Attach(s *vfiouser.Session) error {
	if err := a.Device.Attach(s); err != nil {
		return err
	}
	a.page.SetAttached(true)
	a.page.AddChange()
	return nil
}

// Detach implements [vfiouser.Device].
func (a attachment) Detach(s *vfiouser.Session) {
	a.Device.Detach(s)
	a.page.SetAttached(false)
	a.page.AddChange()
}
