package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/web"
)

// A daemon that was killed may have forked a process just before, which holds its socket until it
// executes its program. A socket that listens for longer is another daemon's.
const (
	listenRetryEvery = 20 * time.Millisecond
	listenRetries    = 25
)

// awaitUnused waits until nobody listens on the socket at path. It returns an error if another
// daemon does.
func awaitUnused(ctx context.Context, c clock.Clock, path string) error {
	for try := 1; ; try++ {
		conn, err := net.Dial("unix", path)
		switch {
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil:
			err = conn.Close()
		case errors.Is(err, unix.EAGAIN):
			err = nil // a daemon listens, and is busy
		}
		if err != nil {
			return fmt.Errorf("find out whether another daemon listens: %w", err)
		}
		if try == listenRetries {
			return fmt.Errorf("another daemon listens on %s", path)
		}
		if err := clock.Tick(ctx, c, listenRetryEvery); err != nil {
			return err
		}
	}
}

// listener is a listener with what it serves.
type listener struct {
	net.Listener
	metrics bool                   // alone
	hosts   func(name string) bool // by which requests may call the daemon
}

// listen opens the API's socket, which its owner and the configured group may use, and the
// listeners for other hosts and for metrics if those are configured.
func (s *Service) listen(ctx context.Context) (all []listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			all = nil
		}
	}()
	c := &s.o.Config
	if err := awaitUnused(ctx, s.clock, c.Socket); err != nil {
		return nil, err
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale socket: %w", err)
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", c.Socket)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen for API requests: %w", err)
	}
	all = append(all, listener{Listener: access.Limit(l), hosts: web.LoopbackOrLabel})
	if err := s.shareSocket(); err != nil {
		return all, err
	}
	if c.TLS.Address != "" {
		l, err := s.listenTLS(c.TLS.Address)
		if err != nil {
			return all, err
		}
		all = append(all, listener{Listener: l, hosts: web.Anywhere})
	}
	if c.Metrics != "" {
		l, err := net.Listen("tcp", c.Metrics)
		if err != nil {
			return all, fmt.Errorf("listen for requests for metrics: %w", err)
		}
		all = append(all, listener{Listener: access.Limit(l), metrics: true})
	}
	return all, nil
}

// apiHandler returns the API for the callers that caller names.
func (s *Service) apiHandler(caller func(*http.Request) access.Caller, metrics http.Handler) http.Handler {
	return api.Handler(s, api.HandlerOptions{Caller: caller, Audit: s.audit.Write, Events: s.events, Metrics: metrics, Log: s.log})
}

// serve answers requests on the listeners. page, if not nil, is the page's own.
func (s *Service) serve(listeners []listener, page net.Listener, fail func(error)) []*http.Server {
	metrics := newMetrics(s)
	handler := s.withPage(s.apiHandler(s.caller, metrics), s.caller)
	var servers []*http.Server
	if page != nil {
		servers = append(servers, s.servePage(page, s.apiHandler(anybody, metrics), fail))
	}
	for _, l := range listeners {
		h := web.Guard(handler, l.hosts)
		serve := (*http.Server).Serve
		if l.metrics {
			var err error
			if h, err = metricsPages(s, metrics); err != nil {
				fail(err)
				continue
			}
			serve = func(server *http.Server, l net.Listener) error { return s.serveMetrics(l, server) }
		}
		server := api.NewServer(h, s.log)
		servers = append(servers, server)
		s.wg.Go(func() {
			if err := serve(server, l); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serve the API: %w", err))
			}
		})
	}
	return servers
}
