package dashboards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/e2e/operators"
)

// unusedAddress returns an address of this machine that nobody listens on.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// prometheus is a running Prometheus.
type prometheus struct {
	t    *testing.T
	url  string
	done chan struct{} // closed when it has ended
}

// startPrometheus starts a Prometheus that scrapes addresses once a second and evaluates a file of
// rules, unless that is empty. It ends with the test.
func startPrometheus(t *testing.T, target, rules string, others ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := map[string]any{
		"global": map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"scrape_configs": []any{map[string]any{
			"job_name": "vgpud", "static_configs": []any{map[string]any{"targets": append([]string{target}, others...)}},
		}},
	}
	if rules != "" {
		config["rule_files"] = []string{rules}
	}
	text, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	address := unusedAddress(t)
	cmd := exec.Command(operators.Program(t, "prometheus"), "--config.file="+path, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{t: t, url: "http://" + address, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // it is ended by a signal
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-p.done
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			b, err := os.ReadFile(log.Name())
			t.Logf("Prometheus's log: %s %v", b, err)
		}
	})
	p.until("Prometheus's readiness", func() error {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return p
}

// until calls ask until it returns nil.
func (p *prometheus) until(what string, ask func() error) {
	p.t.Helper()
	host.Until(p.t, waitLimit, what, func() error {
		select {
		case <-p.done:
			p.t.Fatal("Prometheus has ended")
		default:
		}
		return ask()
	})
}

// get reads a path of Prometheus's HTTP API into data.
func (p *prometheus) get(ctx context.Context, path string, query url.Values, data any) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer := struct {
		Error string `json:"error"`
		Data  any    `json:"data"`
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// sample is one result of a query.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) ([]sample, error) {
	var data struct {
		Result []sample `json:"result"`
	}
	err := p.get(p.t.Context(), "/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}
