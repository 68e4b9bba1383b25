package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

type contextKey struct{}

// ConnContext is for [net/http.Server.ConnContext]: it notes which process is at the other end of a
// connection to a unix socket.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	p, err := Peer(c)
	if err != nil {
		return ctx // Rules.Caller gives it no role
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(p.UID), 10)); err == nil {
		p.User = u.Username
	}
	return context.WithValue(ctx, contextKey{}, p)
}

// errNoPeer means that a connection is to no unix socket.
var errNoPeer = errors.New("the connection has no process at its other end")

// Peer returns the process at the other end of a connection to a unix socket, by the kernel's word
// from when it connected.
func Peer(c net.Conn) (*Process, error) {
	if n, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = n.NetConn()
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errNoPeer
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("find out who connected: %w", err)
	}
	var p *Process
	cerr := raw.Control(func(fd uintptr) { p, err = peerOf(int(fd)) })
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("find out who connected: %w", err)
	}
	return p, nil
}

func peerOf(fd int) (*Process, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return nil, err
	}
	return &Process{PID: int(cred.Pid), UID: cred.Uid, GIDs: append(groups, cred.Gid)}, nil
}
