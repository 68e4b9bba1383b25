package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Owner is the user and group that own a socket.
type Owner struct{ UID, GID int }

// Listen creates the socket at path with mode 0600, owned by owner unless that is nil. At no moment
// can others connect. It replaces a socket that a dead server left at path; a socket with a live
// server is an error.
func Listen(path string, owner *Owner) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Linux gives the socket's file the mode that the socket has when it is bound.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var e error
		err := c.Control(func(fd uintptr) { e = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, e)
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for vfio-user clients: %w", err)
	}
	if owner != nil {
		if err := os.Lchown(path, owner.UID, owner.GID); err != nil {
			l.Close()
			return nil, fmt.Errorf("give vfio-user socket to its client: %w", err)
		}
	}
	return l.(*net.UnixListener), nil
}

func removeStale(path string) error {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != os.ModeSocket {
		return nil // nothing is there, or bind will report it
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("listen for vfio-user clients: another server is at %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale vfio-user socket: %w", err)
	}
	return nil
}
