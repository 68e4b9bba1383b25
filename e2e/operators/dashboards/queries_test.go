package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/e2e/operators"
	"vgpud/mediator/api"
)

// query is one query of the dashboard.
type query struct{ panel, expr string }

// readDashboard returns the queries of the dashboard, with Grafana's variables replaced.
func readDashboard(t *testing.T) (all []query) {
	t.Helper()
	b, err := os.ReadFile("../../../deploy/grafana/vgpud.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer("$__rate_interval", "8s", "$__range", "1m", "$instance", ".*", "$gpu", ".*", "$vm", ".*")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, query{p.Title, replace.Replace(target.Expr)})
		}
	}
	return all
}

// hardware serves what a daemon with an NVIDIA GPU answers a scrape: the golden file of the daemon's
// own test, in which each guest and GPU has every metric that there is.
func hardware(t *testing.T) (address string) {
	t.Helper()
	text, err := os.ReadFile("../../../mediator/daemon/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(text); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestQueries runs every query of the dashboard and every alert's expression on a Prometheus that
// scrapes a running vgpud, whose guests have work and evict each other's kernels, and a daemon with
// an NVIDIA GPU, which this machine lacks. Each of the dashboard's has a result, of the running
// vgpud unless it is about hardware.
func TestQueries(t *testing.T) {
	operators.Require(t)
	h, address := startHost(t, "hpf")
	// Evictions need two guests of different priority; startHost's are.
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, address, rules, hardware(t))
	h.Until("evictions", func() error {
		gpus, err := h.Client.GPUs(t.Context())
		if err == nil && gpus[0].Evictions.Count == 0 {
			err = fmt.Errorf("none yet: %+v", gpus[0].Launches)
		}
		return err
	})
	// The terms of a guest that has nothing else are shown, too.
	h.NewVM(api.VMSpec{Name: "resting", Weight: 2, Guarantee: 0.1})
	queries := readDashboard(t)
	if len(queries) < 30 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	for _, q := range queries {
		p.until(q.panel+": a result of "+q.expr, func() error {
			got, err := p.query(q.expr)
			if err != nil {
				return err
			}
			for _, s := range got {
				if s.Metric["instance"] == address || s.Metric["instance"] == "" || aboutHardware(q.expr) {
					return nil
				}
			}
			return fmt.Errorf("%d results, none of %s", len(got), address)
		})
	}
	for _, r := range readRules(t) {
		if _, err := p.query(r.Expr); err != nil {
			t.Errorf("alert %s: %v", r.Alert, err)
		}
	}
	// Prometheus itself has evaluated every rule without an error.
	p.until("the evaluation of the rules", func() error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.get(context.Background(), "/api/v1/rules", url.Values{}, &data); err != nil {
			return err
		}
		healthy := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.LastError != "" {
					t.Fatalf("alert %s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					healthy++
				}
			}
		}
		if healthy != len(readRules(t)) {
			return fmt.Errorf("%d rules are healthy", healthy)
		}
		return nil
	})
}

// aboutHardware reports whether a query is about what NVIDIA's driver tells.
func aboutHardware(expr string) bool {
	for _, name := range []string{"temperature_celsius", "power_", "clock_hertz", "gpu_memory_used_bytes", "throttled", "ecc_", "xid_"} {
		if strings.Contains(expr, name) {
			return true
		}
	}
	return false
}
