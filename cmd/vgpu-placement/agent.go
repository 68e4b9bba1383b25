package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"vgpud/internal/unixmsg"
	"vgpud/mediator/nova/agent"
	"vgpud/mediator/nova/reservation"
)

// serveAgent answers vgpud on a socket until stop is called.
func serveAgent(path string, a *agent.Agent, log *slog.Logger) (stop func() error, err error) {
	// A socket that is there was left by an agent that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen for vgpud: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for vgpud: %w", err)
	}
	// vgpud is root without the right to open what is not its own, so anybody may connect; ofRoot
	// closes others' connections.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for vgpud: %w", err), l.Close())
	}
	s := &http.Server{Handler: reservation.Handler(a.Reserve), ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(ofRoot{l}); !errors.Is(err, http.ErrServerClosed) {
			log.Error("vgpud is not answered any more", "err", err)
		}
	}()
	return func() error {
		err := s.Close()
		<-done
		return err
	}, nil
}

// ofRoot accepts connections of root's processes, and of this process's user.
type ofRoot struct{ net.Listener }

// Accept implements [net.Listener].
func (l ofRoot) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if u, ok := c.(*net.UnixConn); ok {
			if cred, err := unixmsg.Peer(u); err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
				return c, nil
			}
		}
		_ = c.Close() // nothing was said
	}
}
