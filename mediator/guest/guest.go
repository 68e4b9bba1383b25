package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"vgpud/mediator/executor"
	"vgpud/mediator/link"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// ControlSocket is the name, in a guest's directory, of the socket on which the
// daemon finds it.
const ControlSocket = "control.sock"

// Options are what a guest's process works with.
type Options struct {
	Spec link.Spec
	// Dir is the guest's own directory, for its control socket.
	Dir string
	// Owner, if set, is whom the vfio-user socket belongs to: the VMM's user.
	Owner *vfiouser.Owner
	// Command makes an executor's process, whose end of the link is its file
	// descriptor 3.
	Command func() *exec.Cmd
	Log     *slog.Logger
	Version string
	// Ready is called when both sockets listen.
	Ready func() error
}

// Run serves the guest's virtual GPU until ctx ends or the daemon says so.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := o.Log.With("guest", o.Spec.Name)

	page, err := link.NewPage()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()

	b := &executors{spec: o.Spec, page: page, command: o.Command, log: log}
	dev, err := vgpu.New(vgpu.Config{
		SharedBytes: int64(o.Spec.BAR2Bytes), MemoryBytes: o.Spec.MemoryLimit,
		PollWindow: executor.PollWindow, Features: executor.Features,
	}, b, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	defer b.wait()
	b.dev, b.header = dev, abi.HeaderBytes(dev.Config().Channels)

	l, err := vfiouser.Listen(o.Spec.Socket, o.Owner)
	if err != nil {
		return err
	}
	control, err := listenControl(filepath.Join(o.Dir, ControlSocket))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := o.Ready(); err != nil {
		return errors.Join(fmt.Errorf("report to be ready: %w", err), l.Close(), control.Close())
	}
	log.Info("virtual GPU ready", "socket", o.Spec.Socket, "gpu", o.Spec.GPU.Name)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		serveControl(ctx, control, link.Hello{Version: o.Version, Spec: o.Spec, PID: os.Getpid()}, page, cancel, log)
	})
	server := &vfiouser.Server{Device: attachment{dev, page}, Log: log}
	err = server.Serve(ctx, l)
	cancel()
	log.Info("virtual GPU ends")
	return err
}

// attachment notes on the guest's page whether a VMM is connected.
type attachment struct {
	*vgpu.Device
	page *link.Page
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

// listenControl makes the control socket, which only its owner may use.
func listenControl(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale control socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		return nil, fmt.Errorf("listen for the daemon: %w", err)
	}
	// The guest's directory is the owner's alone, so there is no moment at which
	// others could connect.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the daemon: %w", err), l.Close())
	}
	return l, nil
}

// serveControl introduces the guest to every daemon that comes: a restarted one
// comes anew.
func serveControl(ctx context.Context, l *net.UnixListener, hello link.Hello, page *link.Page, quit func(), log *slog.Logger) {
	stop := context.AfterFunc(ctx, func() { logClose(log, l.Close()) })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil {
				log.Error("accept the daemon", "err", err)
			}
			return
		}
		wg.Go(func() {
			conn := link.NewConn(c)
			stop := context.AfterFunc(ctx, func() { logClose(log, conn.Close()) })
			defer func() {
				if stop() {
					logClose(log, conn.Close())
				}
			}()
			m, err := link.NewMessage(link.KindHello, hello, page.File())
			if err == nil {
				err = conn.Send(m)
			}
			for err == nil {
				if m, err = conn.Receive(); err != nil {
					break
				}
				logClose(log, m.CloseFiles())
				if m.Kind == link.KindQuit {
					log.Info("told to end")
					quit()
				}
			}
			log.Debug("daemon gone", "err", err)
		})
	}
}

func logClose(log *slog.Logger, err error) {
	if err != nil {
		log.Debug("close", "err", err)
	}
}
