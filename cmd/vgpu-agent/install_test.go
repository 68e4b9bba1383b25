package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInstallGuest runs the installer for guests as a package does: the libraries that CUDA programs
// load are where the linker looks first, and doctor finds them there. Without them it installs
// nothing that would look complete.
func TestInstallGuest(t *testing.T) {
	tree, dest := t.TempDir(), t.TempDir()
	put := func(path, text string, mode fs.FileMode) {
		t.Helper()
		path = filepath.Join(tree, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"../../scripts/install.sh": "scripts/install.sh", "../../deploy/vgpu-agent.service": "deploy/vgpu-agent.service"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(to, string(b), 0o755)
	}
	put("bin/vgpu-agent", "#!/bin/sh\n[ \"$1\" != man ] || echo page >\"$2/vgpu-agent.8\"\n", 0o755)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	results, err := filepath.Glob("../../docs/results/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, results...) {
		put(strings.TrimPrefix(page, "../../"), page, 0o644)
	}
	install := func(args ...string) error {
		c := exec.Command(filepath.Join(tree, "scripts/install.sh"), append(args, "--guest")...)
		c.Env = append(os.Environ(), "DESTDIR="+dest, "PREFIX=/usr")
		out, err := c.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	if err := install(); err == nil {
		t.Error("installed without the libraries")
	}
	for _, lib := range []string{"libcuda.so.1", "libvgpucuda.so", "libcudart.so.13"} {
		put("bin/lib/"+lib, lib, 0o755)
	}
	if err := os.Symlink("libcuda.so.1", filepath.Join(tree, "bin/lib/libcuda.so")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again: an update
		if err := install(); err != nil {
			t.Fatal(err)
		}
	}
	installed := map[string]string{}
	for _, name := range []string{"libcuda.so", "libcuda.so.1", "libvgpucuda.so", "libcudart.so.13"} {
		b, err := os.ReadFile(filepath.Join(dest, "usr/lib/vgpu", name))
		if err != nil {
			t.Error(err)
		}
		installed[name] = string(b)
	}
	want := map[string]string{"libcuda.so": "libcuda.so.1", "libcuda.so.1": "libcuda.so.1", "libvgpucuda.so": "libvgpucuda.so", "libcudart.so.13": "libcudart.so.13"}
	if diff := cmp.Diff(want, installed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dest, "etc/ld.so.conf"), []byte("include ld.so.conf.d/*.conf\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Another package's library comes later.
	other := filepath.Join(dest, "usr/lib/x86_64-linux-gnu/libcuda.so.1")
	if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte("another's"), 0o644); err != nil {
		t.Fatal(err)
	}
	found := findLibrary(dest, "", driverLibrary)
	if len(found) != 2 || found[0] != filepath.Join(dest, "usr/lib/vgpu/libcuda.so.1") || !isOurs(found[0]) || isOurs(found[1]) {
		t.Errorf("the linker finds %q", found)
	}
	if e := examineLibraries(dest, "")[0]; e.Result != examWarning {
		t.Errorf("doctor says %+v", e)
	}
	if err := install("--remove"); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path != other && filepath.Base(path) != "ld.so.conf" {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
