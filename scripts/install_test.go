package scripts_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInstallNeedsNoGo checks that `make install` only installs what `make build` made. It runs
// under sudo, whose PATH often lacks go, and what it compiled would be root's.
func TestInstallNeedsNoGo(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make here")
	}
	for goal, want := range map[string]string{
		"install":            "scripts/install.sh\n",
		"install-kubernetes": "scripts/install.sh --kubernetes\n",
		"uninstall":          "scripts/install.sh --remove --purge\n",
	} {
		cmd := exec.Command("make", "--no-print-directory", "-n", goal, "VERSION=1", "UNINSTALLFLAGS=--purge")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "MAKEFLAGS=")
		got, err := cmd.Output()
		if err != nil {
			t.Fatalf("make -n %s: %v", goal, err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("what make %s runs: -want +got\n%s", goal, diff)
		}
	}
}
