package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/crypto/bcrypt"

	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
)

// TestMetricsLint: Prometheus' own linter, which `promtool check metrics` runs, has nothing to say.
func TestMetricsLint(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(exposition.Collector(source{twoGuests}))
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

const metricsPageHead = `# Metrics

This page is generated from the code: ` + "`go test ./mediator/daemon -run TestMetricsPage -update`" + ` writes it.

[Operating vgpud](operations.md#metrics) says where the metrics are served. Beside them there are the usual ` + "`go_*` and `process_*`" + `
metrics of the daemon's own process. Label ` + "`gpu`" + ` is the GPU's name in the configuration, ` + "`vm`" + ` the guest's name, and ` + "`domain`" + ` the name of
its libvirt domain, empty if it belongs to none. A GPU in software has no series of what only a driver knows. The values of a guest that
floats are sums over all GPUs, and its label ` + "`gpu`" + ` is the GPU of its contexts that don't float; where the meaning says "of each
GPU" there is a value for each instead.

| metric | type | labels | meaning |
|---|---|---|---|
`

// metricsPage returns docs/metrics.md.
func metricsPage(t *testing.T) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(exposition.Collector(source{twoGuests}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewBufferString(metricsPageHead)
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	return b.String()
}

// TestMetricsPage compares docs/metrics.md with the metrics, and what each says with rules: it stands
// alone, in one sentence.
func TestMetricsPage(t *testing.T) {
	path, got := filepath.Join("..", "..", "docs", "metrics.md"), metricsPage(t)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/metrics.md (-want +got; go test -update writes it anew):\n%s", diff)
	}
	for _, line := range strings.Split(scrape(t, twoGuests), "\n") {
		if !strings.HasPrefix(line, "# HELP ") {
			continue
		}
		name, help, _ := strings.Cut(strings.TrimPrefix(line, "# HELP "), " ")
		if !strings.HasSuffix(help, ".") || strings.Contains(help, " these ") || strings.HasSuffix(help, " them.") || len(help) < 10 {
			t.Errorf("%s: %q refers to its neighbours, or is no sentence", name, help)
		}
	}
}

// ask returns the status and the body of an answer.
func ask(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

// ill is a host with a problem.
type ill struct{ fakeHost }

func (ill) Health() api.Health { return api.Health{Problems: []string{"GPU gpu0: gone"}} }

func TestMetricsPages(t *testing.T) {
	for name, c := range map[string]struct {
		host   api.Host
		path   string
		status int
		want   string
	}{
		"links":         {twoGuests, "/", 200, `>Metrics</a>`},
		"metrics":       {twoGuests, "/metrics", 200, "\nprocess_resident_memory_bytes "},
		"Go's metrics":  {twoGuests, "/metrics", 200, "\ngo_goroutines "},
		"version":       {twoGuests, "/metrics", 200, `vgpud_build_info{goversion="` + runtime.Version() + `",version="1.2.3"} 1`},
		"healthy":       {twoGuests, "/-/healthy", 200, "vgpud is healthy."},
		"a problem":     {ill{twoGuests}, "/-/healthy", 503, "GPU gpu0: gone"},
		"a problem, 2":  {ill{twoGuests}, "/metrics", 200, "vgpud_healthy 0"},
		"no other page": {twoGuests, "/v1/vms", 404, ""},
	} {
		h, err := metricsPages(c.host, newMetrics(c.host))
		if err != nil {
			t.Fatal(err)
		}
		if status, body := ask(t, h, c.path); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d, want %d and %q:\n%.300s", name, status, c.status, c.want, body)
		}
	}
}

// TestMetricsWebConfig: a file of the exporter-toolkit puts TLS and passwords before the metrics.
func TestMetricsWebConfig(t *testing.T) {
	a := newAuthority(t)
	a.Issue("server", 7)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "web.yml")
	text := fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}\nbasic_auth_users: {prometheus: %q}\n", a.File("server.pem"), a.File("server.key"), hash)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	startDaemonConfigured(t, runDir(t), func(c *Config) { c.Metrics, c.MetricsWebConfig = address, file })
	client := a.httpsClient()
	defer client.CloseIdleConnections()
	for password, want := range map[string]int{"secret": 200, "guess": 401, "": 401} {
		req, err := http.NewRequest("GET", "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("password %q: %d, want %d", password, resp.StatusCode, want)
		}
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none.yml"), a.File("server.pem")} {
		_, err := ParseConfig([]byte("metrics_web_config: " + bad + "\ngpus: [{name: gpu0, socket: /s}]\n"))
		if err == nil || !strings.Contains(err.Error(), "metrics_web_config "+bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// thousand is a host with 1,000 guests on four GPUs.
func thousand() fakeHost {
	h := fakeHost{gpus: nil}
	for i := range 4 {
		g := twoGuests.gpus[1]
		g.Name = fmt.Sprint("gpu", i)
		h.gpus = append(h.gpus, g)
	}
	for i := range 1000 {
		v := twoGuests.vms[0]
		v.Name, v.Domain, v.GPU = fmt.Sprint("guest", i), fmt.Sprint("domain", i), h.gpus[i%4].Name
		h.vms = append(h.vms, v)
	}
	return h
}

// TestMetricsOfManyGuests: the answer with 1,000 guests makes fewer allocations than it has
// series, which is what keeps it fast.
func TestMetricsOfManyGuests(t *testing.T) {
	metrics := newMetrics(thousand())
	var series int
	allocs := testing.AllocsPerRun(1, func() {
		_, body := ask(t, metrics, "/metrics")
		series = strings.Count(body, "\nvgpud_")
	})
	if series < 75_000 || allocs > float64(series) {
		t.Errorf("%d series, %v allocations", series, allocs)
	}
}

// BenchmarkMetrics answers a request for the metrics of 1,000 guests, as Prometheus sends it and
// without compression.
func BenchmarkMetrics(b *testing.B) {
	metrics := newMetrics(thousand())
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			var size int
			for b.Loop() {
				w := httptest.NewRecorder()
				r := httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Accept-Encoding", encoding)
				metrics.ServeHTTP(w, r)
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-of-process")
		})
	}
}
