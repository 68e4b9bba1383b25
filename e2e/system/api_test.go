package system

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// promised are the series that the documentation names, for each guest and GPU.
var promised = map[string][]string{
	"vgpud_vm": {
		"gpu_seconds_total", "share_ratio", "entitled_ratio", "suspensions_total", "suspended_seconds_total",
		"kernels_total", "errors_total",
	},
	"vgpud_gpu": {
		"busy_seconds_total", "idle_seconds_total", "switching_seconds_total", "switches_total",
		"accounting_cpu_seconds_total", "polling_gaps_total", "polling_gap_seconds_total",
		"overruns_total", "overrun_seconds_total",
	},
}

// TestMetrics reads /metrics with two guests.
func TestMetrics(t *testing.T) {
	h := host.Start(t, "dfq")
	guests := []string{"first", "second"}
	for _, name := range guests {
		works(t, newContext(t, h, api.VMSpec{Name: name}))
	}
	page := get(t, h, "/metrics")
	for prefix, names := range promised {
		labels := []string{`gpu="` + host.GPUName + `"`}
		if prefix == "vgpud_vm" {
			labels = nil
			for _, g := range guests {
				labels = append(labels, `domain="",gpu="`+host.GPUName+`",vm="`+g+`"`)
			}
		}
		for _, name := range names {
			for _, l := range labels {
				if !regexp.MustCompile(`(?m)^` + prefix + "_" + name + `\{` + l + `\} [0-9]`).MatchString(page) {
					t.Errorf("no series %s_%s{%s}", prefix, name, l)
				}
			}
		}
	}
	if !strings.Contains(page, "vgpud_gpu_info{") {
		t.Error("no vgpud_gpu_info")
	}
}

// get reads a page from the API's socket.
func get(t *testing.T, h *host.Host, path string) string {
	t.Helper()
	var d net.Dialer
	transport := &http.Transport{}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", h.Config.Socket)
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://vgpud" + path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err != nil || cerr != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %v, %v, %v", path, resp.Status, err, cerr)
	}
	return string(b)
}

// TestControl runs vgpuctl and compares its answers with the API's.
func TestControl(t *testing.T) {
	h := host.Start(t, "dfq")
	for name, weight := range map[string]float64{"first": 1, "second": 2.5} {
		works(t, newContext(t, h, api.VMSpec{Name: name, Weight: weight}))
	}
	dir, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "vgpuctl"), append(args, "--socket", h.Config.Socket)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	asked := func(what string, into any) {
		t.Helper()
		out, code := ctl("get", what, "-o", "json")
		if code != 0 {
			t.Fatalf("get %s: exit status %d: %s", what, code, out)
		}
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("get %s: %v in %s", what, err, out)
		}
	}

	if out, code := ctl("set", "vm", "first", "weight=4"); code != 0 {
		t.Errorf("set: exit status %d: %s", code, out)
	}
	var vms []api.VM
	asked("vms", &vms)
	direct, err := h.Client.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(settled(direct), settled(vms)); diff != "" {
		t.Errorf("guests (-API +vgpuctl):\n%s", diff)
	}
	if len(vms) != 2 || vms[0].Weight != 4 || vms[1].Weight != 2.5 {
		t.Errorf("guests: %+v", vms)
	}
	var gpus []api.GPU
	asked("gpus", &gpus)
	if len(gpus) != 1 || gpus[0].Name != host.GPUName || gpus[0].Policy != "dfq" || gpus[0].VMs != 2 || !gpus[0].Healthy {
		t.Errorf("GPUs: %+v", gpus)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"set", "vm", "nobody", "weight=1"}, 1, "nobody"},
		{[]string{"set", "vm", "first", "weight=heavy"}, 2, "heavy"},
		{[]string{"set", "vm", "first", "weight=-1"}, 2, "weight"},
		{[]string{"get", "vms", "-o", "xml"}, 2, "xml"},
		{[]string{"frobnicate"}, 2, "frobnicate"},
		{[]string{"get", "vms", "nobody"}, 1, "nobody"},
	} {
		if out, code := ctl(c.args...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("vgpuctl %v: exit status %d, want %d: %s", c.args, code, c.code, out)
		}
	}
	if out, code := ctl("get", "vms"); code != 0 || !strings.Contains(out, "WEIGHT") || !strings.Contains(out, "second") {
		t.Errorf("the table, exit status %d:\n%s", code, out)
	}
}

// settled returns vms without what changes from one request to the next.
func settled(vms []api.VM) []api.VM {
	for i := range vms {
		v := &vms[i]
		v.Share, v.Entitled, v.BusyRatio, v.GPUSeconds, v.SuspendedSeconds = 0, 0, 0, 0, 0
		v.GPUSecondsOwn = nil
		v.Active, v.Suspended, v.Suspensions = false, false, 0
	}
	return vms
}
