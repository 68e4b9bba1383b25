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

// TestUninstallEndsGuests: `make uninstall` deletes the guests, whose virtual GPUs would go on without the
// daemon, before it stops the services, and then ends what is left: all of them, if no daemon runs. The
// script has directories of its own in the place of /etc and /run, and what it calls only notes that.
func TestUninstallEndsGuests(t *testing.T) {
	for state, want := range map[string]string{
		"active": `vgpuctl delete vm web1 --force
vgpuctl delete vm web2 --force
systemctl stop vgpu-placement.service vgpud.service vgpud-softgpu@*.service
systemctl kill vgpud.service
systemctl disable vgpud.service vgpu-placement.service
systemctl daemon-reload
`,
		"inactive": `systemctl stop vgpu-placement.service vgpud.service vgpud-softgpu@*.service
systemctl kill vgpud.service
systemctl disable vgpud.service vgpu-placement.service
systemctl daemon-reload
`,
	} {
		t.Run(state, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir,
				file{"path/systemctl", "#!/bin/sh\ncase $1 in is-active) cat " + dir + "/state ;; *) echo systemctl \"$@\" >>" + dir + "/calls ;; esac\n" +
					"case $1 in stop) echo inactive >" + dir + "/state ;; esac\n"},
				file{"sbin/vgpuctl", "#!/bin/sh\ncase $1 in get) printf 'vm/web1\\nvm/web2\\n' ;; *) echo vgpuctl \"$@\" >>" + dir + "/calls ;; esac\n"},
				file{"state", state + "\n"},
			)
			apart := "mount -t tmpfs none /etc && mount -t tmpfs none /run && mkdir -p /run/systemd/system"
			if out, err := exec.Command("unshare", "--map-root-user", "--mount", "sh", "-c", apart).CombinedOutput(); err != nil {
				t.Skipf("mounts of its own can't be had here: %v: %s", err, out)
			}
			cmd := exec.Command("unshare", "--map-root-user", "--mount", "sh", "-c", apart+" && exec ./install.sh --remove")
			cmd.Env = append(os.Environ(), "PATH="+dir+"/path:"+os.Getenv("PATH"), "DESTDIR=", "PREFIX="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("install.sh --remove: %v\n%s", err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("what it called: -want +got\n%s", diff)
			}
			if _, err := os.Stat(filepath.Join(dir, "sbin/vgpuctl")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("it left vgpuctl")
			}
		})
	}
}
