package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"

	"vgpud/internal/qmpconn"
)

// Runner runs commands of QEMU's monitor. args and result may be nil.
type Runner interface {
	Run(ctx context.Context, command string, args, result any) error
}

// Monitor is a connection to QEMU's monitor. Its methods may be called from any goroutine. Close
// must be called in the end.
type Monitor struct {
	monitor    monitor
	disconnect func() error // ends the connection and pending calls
	domain     *domain      // nil for a VM without libvirt

	mu    sync.Mutex
	ended error
}

// Dial connects to a QEMU monitor's socket, which serves one client.
func Dial(ctx context.Context, socket string) (*Monitor, error) {
	d := net.Dialer{Timeout: dialLimit}
	conn, err := d.DialContext(ctx, "unix", socket)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("connect to QEMU's monitor: no answer: %w", cause)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to QEMU's monitor: %w", explain(err))
	}
	return connect(ctx, &direct{conn: conn}, conn.Close, "QEMU's monitor at "+socket)
}

// LibvirtSockets returns the sockets of libvirt's daemon for QEMU and of its daemon for all
// drivers.
func LibvirtSockets() []string {
	return []string{"/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"}
}

// DialDomain connects to the monitor of a domain's QEMU through libvirt's daemon, at the first of
// the sockets that it listens on. The domain must run.
func DialDomain(ctx context.Context, sockets []string, name string) (*Monitor, error) {
	d := net.Dialer{Timeout: dialLimit}
	var errs []error
	for _, s := range sockets {
		conn, err := d.DialContext(ctx, "unix", s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return connect(ctx, newDomain(name, conn), conn.Close, "libvirt")
	}
	return nil, fmt.Errorf("connect to libvirt: is its daemon running? %w", explain(errors.Join(errs...)))
}

// monitor is a way to QEMU's monitor. Its methods return when its connection is closed.
type monitor interface {
	Connect() error
	Run(command string, args, result any) error
}

// direct is QEMU's monitor at its own socket.
type direct struct {
	conn net.Conn
	qmp  *qmpconn.Conn // after Connect
}

// Connect waits until QEMU takes commands.
func (d *direct) Connect() (err error) {
	d.qmp, err = qmpconn.New(context.Background(), d.conn, nil)
	return err
}

// Run runs a QEMU command.
func (d *direct) Run(command string, args, result any) error {
	return d.qmp.Run(context.Background(), command, args, result)
}

func connect(ctx context.Context, monitor monitor, disconnect func() error, what string) (*Monitor, error) {
	m := &Monitor{monitor: monitor, disconnect: disconnect}
	m.domain, _ = monitor.(*domain)
	if err := m.runContext(ctx, monitor.Connect); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", what, err), ignoreClosed(disconnect()))
	}
	return m, nil
}

// runContext calls f, which takes no context. If ctx ends first it disconnects, after which the
// connection can't be used.
func (m *Monitor) runContext(ctx context.Context, f func() error) error {
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if ended != nil {
		return ended
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return explainEnd(err)
	case <-ctx.Done():
		err := fmt.Errorf("no answer: %w", context.Cause(ctx))
		m.mu.Lock()
		m.ended = err
		m.mu.Unlock()
		return errors.Join(err, ignoreClosed(m.disconnect()))
	}
}

// explainEnd makes the end of a connection clear.
func explainEnd(err error) error {
	if errors.Is(err, qmpconn.ErrEnded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the connection was closed before the answer came; has the VM ended? (%w)", err)
	}
	return err
}

// Identity identifies the VM.
func (m *Monitor) Identity(ctx context.Context) (Identity, error) {
	if m.domain != nil {
		return m.domain.identity(), nil
	}
	return Identify(ctx, m)
}

// Run implements [Runner]. If ctx ends first, this command may still be carried out, but no later
// one.
func (m *Monitor) Run(ctx context.Context, command string, args, result any) error {
	// An answer may still come when ctx has ended, so it is not written to result at once.
	var answer json.RawMessage
	err := m.runContext(ctx, func() error { return m.monitor.Run(command, args, &answer) })
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		return fmt.Errorf("QEMU's %s: %w", command, err)
	}
	return nil
}

// Close ends the connection.
func (m *Monitor) Close() error {
	m.mu.Lock()
	ended := m.ended
	m.ended = net.ErrClosed
	m.mu.Unlock()
	if ended != nil {
		return nil // disconnected already
	}
	return ignoreClosed(m.disconnect())
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// explain adds what to do about a socket that can't be reached.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run as root", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; the VM has probably ended", err)
	}
	return err
}
