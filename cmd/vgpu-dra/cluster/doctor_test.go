package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"vgpud/mediator/api"
)

// testDoctor checks what an operator is told, by vgpu-dra doctor and by metrics.
func testDoctor(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 2)
	yes := true
	if _, err := n.host.Client.UpdateGPU(t.Context(), "gpu1", api.GPUUpdate{Cordoned: &yes}); err != nil {
		t.Fatal(err)
	}
	n.host.NewVM(api.VMSpec{Name: "local", GPU: "gpu0", Weight: 30, MemoryLimitBytes: 1 << 30})
	n.awaitOffer(t, map[string]amounts{"gpu0": {70, 7168}})
	out, err := exec.Command(n.program, "doctor", "--config", n.config()).CombinedOutput()
	t.Logf("doctor:\n%s", out)
	if err != nil || regexp.MustCompile(`(?m) (no|no, needed|unknown)  `).Match(out) || !strings.Contains(string(out), "70 shares and 7168 MiB") ||
		!strings.Contains(string(out), "nothing, because it is cordoned") {
		t.Errorf("where nothing is wrong, doctor says so: %v", err)
	}

	w := p.place(t, "pod", 25, "1Gi")
	if _, err := n.prepare(t.Context(), t, w, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	metrics := n.scrape(t.Context(), t)
	for _, want := range []string{
		"vgpud_kubernetes_daemon_up 1", `vgpud_kubernetes_shares{gpu="gpu0",state="offered"} 70`, `vgpud_kubernetes_shares{gpu="gpu0",state="reserved"} 30`,
		`vgpud_kubernetes_shares{gpu="gpu1",state="offered"} 0`, `vgpud_kubernetes_claims_total{kind="prepare",result="ok"} 1`, "vgpud_kubernetes_errors_total 0",
		`vgpud_kubernetes_memory_bytes{gpu="gpu0",state="offered"} 7.516192768e+09`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.driver.cmd.Process.Pid)); err != nil {
		t.Error(err)
	} else {
		t.Logf("the driver's memory: %s", regexp.MustCompile(`VmRSS:.*`).Find(status))
	}
	n.giveBack(t, w)

	// The doctor names a failure, and says that the failed part is needed.
	n.driver.kill(t)
	out, err = exec.Command(n.program, "doctor", "--config", n.config()).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !regexp.MustCompile(`(?m)^driver +- +no, needed`).Match(out) {
		t.Errorf("without the driver: %v\n%s", err, out)
	}
	n.startDriver(t)
}

// scrape returns the driver's metrics.
func (n *node) scrape(ctx context.Context, tb testing.TB) string {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.metrics+"/metrics", nil)
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
