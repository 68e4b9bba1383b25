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

// ControlSocket is the name, in a guest's directory, of the socket that daemons connect to.
const ControlSocket = "control.sock"

// control is the guest's side of its connections to daemons. A restarted daemon makes a new
// connection.
type control struct {
	pages  []*ipc.ControlPage
	quit   func() // ends the guest
	drain  func(ipc.Drain)
	place  func(ipc.Place)
	leave  func(ipc.Leave)
	lend   func(ipc.Lend)
	alone  func() // called when no daemon is connected any more
	log    *slog.Logger
	stderr *Stderr // nil: daemons can't replace it

	mu      sync.Mutex
	hello   ipc.Hello
	conns   map[*ipc.Conn]bool     // true once the hello was sent
	handles map[int]contextHandles // by context
	tasks   []ipc.Task             // contexts that float, from their request to their end
	away    []ipc.Left             // those of them that have left their GPUs
	grows   []ipc.Grow             // what those ask for that need more memory
	spares  []ipc.Spare            // spare executors with memory that is lent

	clock   clock.Clock
	changes chan struct{} // one entry: a message about changes is due
}

// listenControl creates the control socket, accessible to its owner alone.
func listenControl(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale control socket: %w", err)
	}
	// Linux gives the socket's file the mode that the socket has when it is bound, so others can't
	// connect at any moment.
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

// acceptRetry is the wait after a failed accept.
const acceptRetry = 250 * time.Millisecond

// serve sends every daemon that connects the hello and its later messages until ctx ends. The
// connections stay open after that.
func (c *control) serve(ctx context.Context, l *net.UnixListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { logClose(c.log, l.Close()) })
	defer stop()
	wg.Go(func() { c.sendChanges(ctx) })
	for {
		u, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				logClose(c.log, u.Close())
			}
			return
		case err != nil:
			// Descriptors or memory are short for now. Ending here would leave a guest that no
			// later daemon could control.
			c.log.Error("accept the daemon", "err", err)
			if clock.Sleep(ctx, clock.Real{}, acceptRetry) != nil {
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
			if err := c.serveDaemon(conn); ctx.Err() == nil {
				c.log.Debug("daemon gone", "err", err)
				c.drop(conn)
			}
		})
	}
}

// serveDaemon sends the hello to one daemon and follows its requests until the connection ends or
// expires.
func (c *control) serveDaemon(conn *ipc.Conn) error {
	c.mu.Lock()
	err := c.sendHello(conn)
	c.mu.Unlock()
	for err == nil {
		var m ipc.Message
		if m, err = conn.Receive(); err != nil {
			break
		}
		if m.Kind == ipc.KindLog && len(m.Files) == 1 && c.stderr != nil {
			if err := c.stderr.replace(m.Files[0]); err != nil {
				c.log.Warn("write the log to the new daemon", "err", err)
			}
		}
		logClose(c.log, m.CloseFiles())
		switch m.Kind {
		case ipc.KindQuit:
			c.log.Info("the daemon asks to end")
			c.quit()
		case ipc.KindDrain:
			c.handleDrain(&m)
		case ipc.KindPlace:
			c.handlePlace(&m)
		case ipc.KindLeave:
			c.handleLeave(&m)
		case ipc.KindLend:
			c.handleLend(&m)
		}
	}
	return err
}

// drop closes one connection.
func (c *control) drop(conn *ipc.Conn) {
	c.mu.Lock()
	delete(c.conns, conn)
	alone := len(c.conns) == 0
	c.mu.Unlock()
	logClose(c.log, conn.Close())
	if alone && c.alone != nil {
		c.alone()
	}
}

// close closes the remaining connections and handles. serve must have returned.
func (c *control) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
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
