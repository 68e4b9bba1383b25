package systemd

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"vgpud/e2e/operators"
	"vgpud/vfio/qemu"
)

// Paths in the VM.
const (
	serveProgram = "/usr/local/sbin/init"
	guestProgram = "/usr/local/bin/demoguest"
	packagesDir  = "/root/packages"
)

// serveUnit connects the host with the VM's shell, by the second serial port.
const serveUnit = `[Unit]
Description=Executes what the test wants
DefaultDependencies=no
After=systemd-tmpfiles-setup.service dbus.socket

[Service]
ExecStart=` + serveProgram + ` serve
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HOME=/root
TasksMax=infinity

[Install]
WantedBy=multi-user.target
`

// masked are units that cost time at a boot and serve no test.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty.target",
	"systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udev-settle.service",
	"systemd-logind.service", "systemd-user-sessions.service", "systemd-binfmt.service", "systemd-random-seed.service", "systemd-update-utmp.service",
	"systemd-firstboot.service", "systemd-hwdb-update.service", "systemd-machine-id-commit.service", "systemd-pstore.service", "ldconfig.service",
	"systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service", "kmod-static-nodes.service", "modprobe@.service",
	"proc-sys-fs-binfmt_misc.automount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount", "dev-mqueue.mount",
}

// image writes the VM's disk: trixie, this tree's packages, the earlier ones, and what connects the
// test with the VM.
func image(t *testing.T, deps qemu.Deps) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("a disk with files of several users takes root")
	}
	dir := t.TempDir()
	root, disk := filepath.Join(dir, "root"), filepath.Join(dir, "disk")
	command(t, "mkdir", root)
	command(t, "tar", "-C", root, "-xpf", operators.System(t, "clean.tar"))

	// The profiles of other programs take minutes to compile in such a VM.
	profiles, err := os.ReadDir(filepath.Join(root, "etc/apparmor.d"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range profiles {
		if p.Type().IsRegular() {
			command(t, "rm", filepath.Join(root, "etc/apparmor.d", p.Name()))
		}
	}
	for _, unit := range masked {
		link(t, "/dev/null", filepath.Join(root, "etc/systemd/system", unit))
	}
	link(t, "/usr/lib/systemd/system/multi-user.target", filepath.Join(root, "etc/systemd/system/default.target"))
	write(t, filepath.Join(root, "etc/systemd/system/test.service"), serveUnit)
	command(t, "mkdir", "-p", filepath.Join(root, "etc/systemd/system/multi-user.target.wants"))
	link(t, "/etc/systemd/system/test.service", filepath.Join(root, "etc/systemd/system/multi-user.target.wants/test.service"))
	write(t, filepath.Join(root, "etc/machine-id"), "0123456789abcdef0123456789abcdef\n")
	write(t, filepath.Join(root, "etc/hostname"), "operators\n")

	command(t, "install", "-D", filepath.Join(deps.Dir, "programs/init"), root+serveProgram)
	command(t, "install", "-D", filepath.Join(deps.Dir, "programs/demoguest"), root+guestProgram)
	built := operators.Built(t)
	command(t, "install", "-D", "-m", "644", built.Deb(t, "vgpud"), filepath.Join(root, packagesDir, "new.deb"))
	command(t, "install", "-D", "-m", "644", built.Earlier(t, "vgpud").Deb(t, "vgpud"), filepath.Join(root, packagesDir, "earlier.deb"))

	command(t, "truncate", "-s", "2G", disk)
	command(t, "mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^has_journal", "-E", "lazy_itable_init=1", "-d", root, disk)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	return disk
}

// command runs a program of this machine, which must succeed.
func command(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// link makes a symbolic link in place of what is at path.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), fs.FileMode(0o644)); err != nil {
		t.Fatal(fmt.Errorf("write: %w", err))
	}
}
