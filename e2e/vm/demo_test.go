package vm

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"vgpud/e2e/host"
)

// TestDemo runs the demo with VMs as a user does, but shorter. It succeeds only if each guest had
// results checked in each phase and none was wrong.
func TestDemo(t *testing.T) {
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "vgpud"), "demo", "--vms", "--output", "json", "--duration", "5s").Output()
	if err != nil {
		if ee, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Logf("%s", ee.Stderr)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	var result struct {
		Phases []struct {
			Policy string `json:"policy"`
			Guests []struct {
				Name     string  `json:"name"`
				Verified bool    `json:"verified"`
				Cases    uint64  `json:"cases_checked"`
				Own      float64 `json:"gpu_seconds_truth"`
			} `json:"guests"`
		} `json:"phases"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var policies []string
	for _, p := range result.Phases {
		policies = append(policies, p.Policy)
		if len(p.Guests) != 3 {
			t.Errorf("under %s there were %d guests", p.Policy, len(p.Guests))
		}
		for _, g := range p.Guests {
			if !g.Verified || g.Cases == 0 || g.Own == 0 {
				t.Errorf("under %s: %+v", p.Policy, g)
			}
		}
	}
	if !slices.Equal(policies, []string{"none", "dfq"}) {
		t.Errorf("phases: %v", policies)
	}
}
