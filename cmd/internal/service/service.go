// Package service is what the agents between vgpud and an engine over many hosts have in common as
// services: their log, and the address at which their metrics are read.
package service

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"vgpud/cmd/internal/journal"
	"vgpud/mediator/access"
)

// LogTo returns a logger, in the journal's form if that is the destination.
func LogTo(f *os.File) *slog.Logger {
	format := func(w io.Writer, h *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, h) }
	if journal.Connected(f) {
		return slog.New(journal.New(f, slog.HandlerOptions{}, format))
	}
	return slog.New(format(f, &slog.HandlerOptions{}))
}

// LimitMemory keeps an agent small: it has next to nothing to do. The Go runtime's own variables
// override it.
func LimitMemory() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// NewRegistry returns a registry with the metrics of this process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// ServeMetrics serves metrics at an address until stop is called, or not at all if the address is empty.
func ServeMetrics(address string, metrics prometheus.Gatherer, log *slog.Logger) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for requests for metrics: %w", err)
	}
	s := &http.Server{Handler: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(access.Limit(l)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "err", err)
		}
	}()
	return func() error {
		err := s.Close()
		<-done
		return err
	}, nil
}
