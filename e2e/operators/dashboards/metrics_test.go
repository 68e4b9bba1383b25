package dashboards

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/e2e/operators"
)

// fetchMetrics returns what an address serves under /metrics.
func fetchMetrics(address string) ([]byte, error) {
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return b, err
}

// checkMetrics has promtool check metrics, and returns what it says.
func checkMetrics(t *testing.T, metrics []byte) (said string, err error) {
	t.Helper()
	cmd := exec.Command(operators.Program(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewReader(metrics)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestPromtoolChecksMetrics: Debian's promtool has nothing to say about the metrics of a daemon whose
// guests work, are evicted and make mistakes; and it would say something about a wrong one.
func TestPromtoolChecksMetrics(t *testing.T) {
	_, address := startHost(t, "hpf")
	evicted := regexp.MustCompile(`(?m)^vgpud_vm_eviction_seconds_count\{[^}]*vm="light"\} [1-9]`)
	var metrics []byte
	host.Until(t, waitLimit, "an eviction in the histogram", func() (err error) {
		if metrics, err = fetchMetrics(address); err == nil && !evicted.Match(metrics) {
			err = fmt.Errorf("no guest was evicted: %s", regexp.MustCompile(`(?m)^vgpud_vm_eviction_seconds_(count|sum).*$`).FindAll(metrics, -1))
		}
		return err
	})
	if said, err := checkMetrics(t, metrics); err != nil || said != "" {
		t.Errorf("promtool check metrics: %s (%v)", said, err)
	}
	for _, reason := range []string{"request", "memory", "module", "fault", "time-limit", "canceled", "other"} {
		if !bytes.Contains(metrics, fmt.Appendf(nil, `vgpud_vm_errors_by_reason_total{domain="",gpu=%q,reason=%q,vm="light"} 0`, host.GPUName, reason)) {
			t.Errorf("no series of errors for reason %s", reason)
		}
	}
	wrong := append(bytes.Clone(metrics), "# TYPE vgpud_wrong counter\nvgpud_wrong 1\n"...)
	if said, err := checkMetrics(t, wrong); err == nil || !strings.Contains(said, "vgpud_wrong") {
		t.Errorf("promtool lets a counter without help and _total pass: %s (%v)", said, err)
	}
}
