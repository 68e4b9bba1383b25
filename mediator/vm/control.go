package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// ControlSocket is the name, in a guest's directory, of the socket on which the
// daemon finds it.
const ControlSocket = "control.sock"

// control is the guest's side of its links to daemons: a restarted one comes
// anew.
type control struct {
	page   *ipc.Page
	quit   func() // ends the guest
	log    *slog.Logger
	stderr *Stderr // nil: it stays what it is

	mu      sync.Mutex
	hello   ipc.Hello
	conns   map[*ipc.Conn]bool // whether the guest was introduced
	handles map[int]handed     // by context

	clock   clock.Clock
	changes chan struct{} // has room for one: daemons are to be told of changes
}

// listenControl makes the control socket, which only its owner may use.
func listenControl(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale control socket: %w", err)
	}
	// Linux gives the socket's file the mode that the socket itself has when it is
	// bound, so there is no moment at which others could connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var e error
		err := c.Control(func(fd uintptr) { e = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, e)
	}}
	l, err := lc.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the daemon: %w", err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen for the daemon: got a %T", l), l.Close())
	}
	return ul, nil
}

// acceptAgain is how long to wait where a daemon could not be accepted.
const acceptAgain = 250 * time.Millisecond

// serve introduces the guest to every daemon that comes, until ctx ends. The
// links stay open after that.
func (c *control) serve(ctx context.Context, l *net.UnixListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { logClose(c.log, l.Close()) })
	defer stop()
	wg.Go(func() { c.tellOfChanges(ctx) })
	for {
		u, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				logClose(c.log, u.Close())
			}
			return
		case err != nil:
			// Descriptors or memory are short, and a daemon that comes later is not to
			// find a guest that nobody can do anything with.
			c.log.Error("accept the daemon", "err", err)
			if clock.Sleep(ctx, clock.Real{}, acceptAgain) != nil {
				return
			}
			continue
		}
		conn := ipc.NewConn(u)
		c.mu.Lock()
		if c.conns == nil {
			c.conns = make(map[*ipc.Conn]bool)
		}
		c.conns[conn] = false
		c.mu.Unlock()
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { logClose(c.log, conn.Expire()) })
			defer stop()
			if err := c.attend(conn); ctx.Err() == nil {
				c.log.Debug("daemon gone", "err", err)
				c.drop(conn)
			}
		})
	}
}

// attend introduces the guest to one daemon and obeys it until the link ends or
// expires.
func (c *control) attend(conn *ipc.Conn) error {
	c.mu.Lock()
	err := c.introduce(conn)
	c.mu.Unlock()
	for err == nil {
		var m ipc.Message
		if m, err = conn.Receive(); err != nil {
			break
		}
		if m.Kind == ipc.KindLog && len(m.Files) == 1 && c.stderr != nil {
			if err := c.stderr.replace(m.Files[0]); err != nil {
				c.log.Warn("write the log to another daemon", "err", err)
			}
		}
		logClose(c.log, m.CloseFiles())
		if m.Kind == ipc.KindQuit {
			c.log.Info("told to end")
			c.quit()
		}
	}
	return err
}

// drop closes one link.
func (c *control) drop(conn *ipc.Conn) {
	c.mu.Lock()
	delete(c.conns, conn)
	c.mu.Unlock()
	logClose(c.log, conn.Close())
}

// close closes the links that are left; serve must have ended.
func (c *control) close() {
	for conn := range c.conns {
		logClose(c.log, conn.Close())
	}
	clear(c.conns)
	for slot := range c.handles {
		c.forgetHandles(slot)
	}
}

func logClose(log *slog.Logger, err error) {
	if err != nil {
		log.Debug("close", "err", err)
	}
}
