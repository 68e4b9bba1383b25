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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/api"
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

// listen opens the API's socket, which only its owner may use, and the one for metrics if that is
// configured.
func (s *Service) listen(ctx context.Context) ([]net.Listener, error) {
	path := s.o.Config.Socket
	if err := awaitUnused(ctx, s.clock, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a stale socket: %w", err)
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen for API requests: %w", err)
	}
	if s.o.Config.Metrics == "" {
		return []net.Listener{l}, nil
	}
	m, err := net.Listen("tcp", s.o.Config.Metrics)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for requests for metrics: %w", err), l.Close())
	}
	return []net.Listener{l, m}, nil
}

// serve answers requests on the listeners. The first is the API's; one on TCP answers requests for
// metrics alone.
func (s *Service) serve(listeners []net.Listener, fail func(error)) []*http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s})
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	var servers []*http.Server
	for i, l := range listeners {
		h := api.Handler(s, metrics, s.log)
		if i > 0 {
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", metrics)
			h = mux
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, server)
		s.wg.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serve the API: %w", err))
			}
		})
	}
	return servers
}
