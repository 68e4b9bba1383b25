package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/e2e/operators"
)

// root is a Debian system in a directory.
type root struct {
	tb  testing.TB
	dir string
}

// newRoot unpacks an archive of scripts/system-deps.sh into a directory that ends with the test.
func newRoot(t *testing.T, archive string) *root {
	t.Helper()
	operators.Require(t)
	if os.Getuid() != 0 {
		t.Fatal("a root directory with devices and users of its own takes root")
	}
	r := &root{t, t.TempDir()}
	if out, err := exec.Command("tar", "-C", r.dir, "-xpf", operators.System(t, archive)).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, out)
	}
	return r
}

// try runs a shell script in the root, whose processes end with it, and returns its output.
func (r *root) try(script string) (string, error) {
	r.tb.Helper()
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc="+r.dir+"/proc",
		"chroot", r.dir, "/bin/sh", "-ec", script)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// run is try for what must succeed.
func (r *root) run(script string) string {
	r.tb.Helper()
	out, err := r.try(script)
	if err != nil {
		r.tb.Fatalf("%s\n%s%v", script, out, err)
	}
	r.tb.Logf("%s\n%s", script, out)
	return out
}

// copy puts a file of this machine into the root's /tmp, and returns its path there.
func (r *root) copy(path string) string {
	r.tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		r.tb.Fatal(err)
	}
	to := filepath.Join("/tmp", filepath.Base(path))
	if err := os.WriteFile(filepath.Join(r.dir, to), b, 0o644); err != nil {
		r.tb.Fatal(err)
	}
	return to
}

// read returns a file's content.
func (r *root) read(path string) string {
	r.tb.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil {
		r.tb.Fatal(err)
	}
	return string(b)
}

// add appends text to a file.
func (r *root) add(path, text string) {
	r.tb.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, path), []byte(r.read(path)+text), 0o644); err != nil {
		r.tb.Fatal(err)
	}
}

// exists reports whether there is something at a path.
func (r *root) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(r.dir, path))
	return err == nil
}

// theirs are the paths that belong to package managers, the linker's cache and the tests. The users
// and groups stay when a package goes, as Debian has it, so that a file of theirs never becomes
// another's.
var theirs = []string{
	"/proc", "/run/systemd", "/tmp", "/root", "/var/log", "/var/cache", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/etc/ld.so.cache",
	"/etc/group", "/etc/group-", "/etc/gshadow", "/etc/gshadow-", "/etc/passwd", "/etc/passwd-", "/etc/shadow", "/etc/shadow-", "/etc/.pwd.lock",
}

// files returns every path in the root but for those of theirs, with mode and, of a file, size.
func (r *root) files() map[string]string {
	r.tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, r.dir)
		for _, t := range theirs {
			if name == t || strings.HasPrefix(name, t+"/") {
				return nil
			}
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		all[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			all[name] += fmt.Sprintf(" %d", info.Size())
		}
		return nil
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	return all
}
