package scripts_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

	if os.Getenv("VGPUD_TEST_PROGRAMS") == "" {
		t.Log("nothing was built: what the script itself calls is not tested")
		return
	}
	dir := t.TempDir()
	write(t, dir, file{"path/go", "#!/bin/sh\n: >" + dir + "/called\nexit 127\n"})
	cmd := exec.Command("../scripts/install.sh")
	cmd.Env = append(os.Environ(), "PATH="+dir+"/path:"+os.Getenv("PATH"), "DESTDIR="+dir+"/root", "PREFIX=/usr/local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("install.sh: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "called")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("install.sh called go")
	}
}
