package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/exporter-toolkit/web"

	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
)

// newMetrics returns the handler of /metrics: of guests and GPUs, and of the daemon's own process.
func newMetrics(h api.Host) http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return exposition.Handler(source{h}, own, api.Sender)
}

// healthPath is the path of the health page beside /metrics.
const healthPath = "/-/healthy"

// metricsPages returns what the address for metrics serves: a page with links, /metrics, and a health
// page whose status is 503 while there is a problem.
func metricsPages(h api.Host, metrics http.Handler) (http.Handler, error) {
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: "vgpud", Description: "Shares of the host's GPUs for its guests", Version: h.Health().Version, Profiling: "false",
		Links: []web.LandingLinks{{Address: "/metrics", Text: "Metrics"}, {Address: healthPath, Text: "Health"}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the page of links: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", landing)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		health := h.Health()
		if health.Healthy {
			fmt.Fprintln(w, "vgpud is healthy.")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, problem := range health.Problems {
			fmt.Fprintln(w, problem)
		}
	})
	return mux, nil
}

// checkWebConfig returns an error if the file that protects the metrics' address can't be used.
func checkWebConfig(path string) error {
	if path == "" {
		return nil
	}
	err := web.Validate(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("metrics_web_config %s: there is no such file", path)
	}
	if err != nil {
		return fmt.Errorf("metrics_web_config %s: %w", path, err)
	}
	return nil
}

// serveMetrics answers requests on the address for metrics, over TLS and with passwords if the file
// says so, which is read again for each connection.
func (s *Service) serveMetrics(l net.Listener, server *http.Server) error {
	none, no := []string{}, false
	return web.Serve(l, server, &web.FlagConfig{WebListenAddresses: &none, WebSystemdSocket: &no, WebConfigFile: &s.o.Config.MetricsWebConfig}, s.log)
}
