package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"vgpud/guestagent/cuda"
)

// asRoot skips tests that only root can make.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root, runs as user %d", os.Geteuid())
	}
}

// needed is a line of ldd's: a library's path, or that of the linker.
var needed = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// copyTo copies a file to the same path below root.
func copyTo(t *testing.T, root, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestChroot runs a program that has the libraries and the device's socket below its root, and
// neither /proc nor /sys nor /dev. Without the socket it has no device.
func TestChroot(t *testing.T) {
	asRoot(t)
	g := newGuest(t)
	program, root := compile(t, "vectoradd.c"), t.TempDir()
	files := []string{program, filepath.Join(folder(t), "libvgpucuda.so")}
	for _, f := range files[:2] {
		ldd := exec.Command("ldd", f)
		ldd.Env = g.env
		out, err := ldd.CombinedOutput()
		if err != nil {
			t.Fatalf("ldd %s: %v\n%s", f, err, out)
		}
		for _, m := range needed.FindAllStringSubmatch(string(out), -1) {
			files = append(files, m[1])
		}
	}
	for _, f := range files {
		copyTo(t, root, f)
	}
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env, cmd.Dir = g.env, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err == nil || !strings.Contains(out, "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("without the socket it ended with %v and said %q", err, out)
	}
	socket := filepath.Join(root, g.vm.Socket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(g.vm.Socket, socket); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err != nil || strings.TrimSpace(out) != "right" {
		t.Errorf("it ended with %v and printed %q", err, out)
	}
}

// TestSetuid runs a program with more rights than its user. It finds the library where it was
// linked to, and ignores the environment, in which the user could name a device of its own.
func TestSetuid(t *testing.T) {
	asRoot(t)
	g := newGuest(t)
	program := compile(t, "vectoradd.c", "-Wl,-rpath,"+folder(t))
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // another user passes
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	copyTo(t, dir, program)
	path := filepath.Join(dir, program)
	run := func(user uint32, mode os.FileMode) (string, error) {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path)
		cmd.Env = []string{cuda.SocketVariable + "=" + g.vm.Socket}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(0, 0o755); err != nil || strings.TrimSpace(out) != "right" {
		t.Errorf("by its owner it ended with %v and printed %q", err, out)
	}
	const nobody = 65534
	out, err := run(nobody, 0o755|os.ModeSetuid)
	if err == nil || !strings.Contains(out, "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("with the owner's rights it ended with %v and said %q", err, out)
	}
}
