package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"vgpud/internal/qmpconn"
	"vgpud/vfio/qemu/console"
)

// VM is a running QEMU. Its methods may be called from several goroutines at once. mu guards
// waiters.
type VM struct {
	opts   Options
	dir    string // of the sockets
	ownDir bool   // dir is removed at the end
	cmd    *exec.Cmd
	exited chan struct{} // closed after QEMU has exited and been waited for
	err    error         // the result of QEMU; valid after exited

	monitor *qmpconn.Conn
	guest   *console.Client
	stderr  *lines   // of QEMU
	printed *lines   // by the guest's kernel and init
	tty     net.Conn // the guest's kernel console

	mu      sync.Mutex
	waiters map[*Expectation]bool

	wg    sync.WaitGroup // of the goroutines that read QEMU's output
	close sync.Once
	cerr  error
}

// Start starts QEMU and returns when it has created its devices and runs. ctx only limits the
// start. The caller must call Close.
func Start(ctx context.Context, o Options) (*VM, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	log := &sharedLog{w: o.Log}
	v := &VM{
		opts:    o,
		dir:     o.Dir,
		exited:  make(chan struct{}),
		stderr:  &lines{prefix: o.Name + ": qemu: ", log: log},
		printed: &lines{prefix: o.Name + ": ", log: log},
		waiters: map[*Expectation]bool{},
	}
	if v.dir == "" {
		if v.dir, err = os.MkdirTemp("", "qemu-"); err != nil {
			return nil, fmt.Errorf("start VM %s: %w", o.Name, err)
		}
		v.ownDir = true
	}
	if err := v.launch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start VM %s: %w", o.Name, err), v.removeDir())
	}
	return v, nil
}

// launch runs QEMU and connects to it.
func (v *VM) launch(ctx context.Context) error {
	s, err := newSockets(v.dir)
	if err != nil {
		return err
	}
	defer s.closeTheirs()
	args, err := v.opts.args(s.numbers())
	if err != nil {
		s.closeOurs()
		return err
	}
	v.cmd = exec.Command(v.opts.Deps.QEMU, args...)
	v.cmd.ExtraFiles = s.theirs[:]
	v.cmd.Stderr = v.stderr
	if err := v.run(); err != nil {
		s.closeOurs()
		return err
	}
	s.closeTheirs() // so that our ends see the end of QEMU
	v.tty = s.console
	v.wg.Go(func() { _, _ = io.Copy(v.printed, v.tty) })
	v.guest = console.NewClient(s.guest, func(p []byte) { _, _ = v.printed.Write(p) })
	if err := v.openMonitor(ctx); err != nil {
		if errors.Is(err, qmpconn.ErrEnded) {
			err = nil // QEMU's own output has the reason
		}
		return errors.Join(err, v.Kill(), v.closeLines(), v.ended())
	}
	return nil
}

// openMonitor connects to QEMU's monitor, whose socket listens before QEMU starts. Our end sees the
// end of QEMU.
func (v *VM) openMonitor(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(v.dir, monitorSocket))
	if err != nil {
		return err
	}
	v.monitor, err = qmpconn.New(ctx, conn, v.dispatch)
	return err
}

// Close kills QEMU if it still runs, waits for its end, and frees the VM's resources. Further calls
// do nothing.
func (v *VM) Close() error {
	v.close.Do(func() {
		v.cerr = errors.Join(v.Kill(), v.closeLines(), v.removeDir())
	})
	return v.cerr
}

// closeLines ends the goroutines that read from QEMU, which has exited.
func (v *VM) closeLines() error {
	err := errors.Join(v.guest.Close(), v.tty.Close())
	if v.monitor != nil {
		err = errors.Join(v.monitor.Close(), err)
	}
	v.wg.Wait()
	return err
}

func (v *VM) removeDir() error {
	if !v.ownDir {
		return nil
	}
	return os.RemoveAll(v.dir)
}

// Name returns Options.Name.
func (v *VM) Name() string { return v.opts.Name }

// PID returns the process ID of QEMU.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// Exited returns a channel that is closed when QEMU has exited.
func (v *VM) Exited() <-chan struct{} { return v.exited }

// Wait waits for QEMU's end. It returns nil if QEMU exited by itself with success, as after a
// guest's power-off.
func (v *VM) Wait(ctx context.Context) error {
	select {
	case <-v.exited:
		if v.err != nil {
			return v.ended()
		}
		return nil
	case <-ctx.Done():
		return v.fail("wait for QEMU's end", context.Cause(ctx))
	}
}

// Console returns the last output of the guest's kernel and init.
func (v *VM) Console() string { return v.printed.String() }

// Ready waits until the guest's init answers. After a reset it waits for the new boot.
func (v *VM) Ready(ctx context.Context) error {
	text, err := v.guest.Ready(ctx)
	if err != nil {
		return v.fail("boot", err)
	}
	v.printed.log.print(v.printed.prefix + "ready: " + text)
	return nil
}

// Run runs a program in the guest, which must be ready. If ctx ends, the program is killed.
func (v *VM) Run(ctx context.Context, cmd Command) (*Process, error) {
	p, err := v.guest.Run(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", v.opts.Name, err)
	}
	return p, nil
}

// Output runs a program in the guest to its end, and returns its standard output.
func (v *VM) Output(ctx context.Context, args ...string) (string, error) {
	p, err := v.Run(ctx, Command{Args: args})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range p.Lines() {
		out.WriteString(line)
		out.WriteByte('\n')
	}
	if err := p.Wait(); err != nil {
		return out.String(), fmt.Errorf("VM %s: %w", v.opts.Name, err)
	}
	return out.String(), nil
}

// fail returns an error with the operation that failed, the reason, and the last output of the
// guest. If QEMU has exited, that is the reason.
func (v *VM) fail(what string, err error) error {
	select {
	case <-v.guest.Done():
		// The connection ends with QEMU, which is about to exit.
		<-v.exited
		err = v.ended()
	case <-v.exited:
		err = v.ended()
	default:
	}
	if s := v.printed.String(); s != "" {
		return fmt.Errorf("VM %s: %s: %w; the guest printed last:\n%s", v.opts.Name, what, err, s)
	}
	return fmt.Errorf("VM %s: %s: %w; the guest has printed nothing", v.opts.Name, what, err)
}

// ended returns an error that describes how QEMU ended.
func (v *VM) ended() error {
	<-v.exited
	text := "QEMU has ended"
	if s := v.stderr.String(); s != "" {
		text += ", having printed:\n" + s
	}
	if v.err != nil {
		return fmt.Errorf("%s: %w", text, v.err)
	}
	return errors.New(text)
}
