// Package scripts_test tests the scripts that a machine without Debian's archive or a network can
// test too.
package scripts_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file is a file to write: a program where it begins with #!.
type file struct{ name, contents string }

func write(t *testing.T, dir string, files ...file) {
	t.Helper()
	for _, f := range files {
		name := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(f.contents, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(name, []byte(f.contents), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// pack runs portable-vm.sh with a compiler that notes how it was called and a compressor of the
// test's. It returns the tarball's name and what the script said.
func pack(t *testing.T, xz string, files ...string) (out, said string, err error) {
	t.Helper()
	dir := t.TempDir()
	deps, path := filepath.Join(dir, "deps"), filepath.Join(dir, "path")
	const libraries = "root/usr/lib/x86_64-linux-gnu/"
	write(t, deps,
		file{"unpacked", "digests\n"},
		file{"qemu", "#!/bin/sh\n"},
		file{"vmlinux", "kernel"},
		file{"initramfs.cpio", "programs"},
		file{"root/usr/bin/qemu-system-x86_64", "QEMU"},
		file{"root/usr/lib64/ld-linux-x86-64.so.2",
			"#!/bin/sh\necho \"	libneeded.so.1 => $VGPUD_VM_DEPS/" + libraries + "libneeded.so.1 (0x1)\"\n"},
		file{libraries + "libneeded.so.1", "needed"},
		file{libraries + "libother.so.1", "libvirt's"},
		file{"root/usr/share/seabios/bios-256k.bin", "BIOS"},
		file{"root/usr/share/qemu/kvmvapic.bin", "ROM"},
		file{"root/usr/share/qemu/linuxboot_dma.bin", "ROM"},
		file{"root/usr/share/qemu/pvh.bin", "ROM"},
		file{"root/usr/share/qemu/other.bin", "display"},
	)
	write(t, path,
		file{"go", "#!/bin/sh\nfor a; do [ \"$last\" != -o ] || out=$a; last=$a; done\necho \"$*\" >\"$out\"\n"},
		file{"xz", "#!/bin/sh\n" + xz},
	)
	out = filepath.Join(dir, "out.tar.xz")
	cmd := exec.Command("./portable-vm.sh", append([]string{out}, files...)...)
	cmd.Env = append(os.Environ(), "VGPUD_VM_DEPS="+deps, "PATH="+path+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
	b, err := cmd.CombinedOutput()
	return out, string(b), err
}

// TestPortableVM: QEMU's own files and no others go along, and vgpud without its symbols.
func TestPortableVM(t *testing.T) {
	along := filepath.Join(t.TempDir(), "vgpuctl")
	write(t, filepath.Dir(along), file{"vgpuctl", "along"})
	out, said, err := pack(t, "cat\n", along)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make(map[string]string)
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got[strings.TrimPrefix(h.Name, "./")] = string(b)
	}
	if built := got["vgpud"]; !strings.Contains(built, "-ldflags=-s -w") || !strings.HasSuffix(built, "./cmd/vgpud\n") {
		t.Errorf("vgpud was built by go %s", built)
	}
	delete(got, "vgpud")
	linker := "vm/root/usr/lib64/ld-linux-x86-64.so.2"
	if got[linker] == "" {
		t.Errorf("there is no %s", linker)
	}
	delete(got, linker)
	want := map[string]string{
		"vgpuctl":                             "along",
		"vm/unpacked":                         "portable\n",
		"vm/qemu":                             "#!/bin/sh\n",
		"vm/vmlinux":                          "kernel",
		"vm/initramfs.cpio":                   "programs",
		"vm/root/usr/bin/qemu-system-x86_64":  "QEMU",
		"vm/root/usr/share/qemu/kvmvapic.bin": "ROM",
		"vm/root/usr/share/qemu/linuxboot_dma.bin":        "ROM",
		"vm/root/usr/share/qemu/pvh.bin":                  "ROM",
		"vm/root/usr/share/seabios/bios-256k.bin":         "BIOS",
		"vm/root/usr/lib/x86_64-linux-gnu/libneeded.so.1": "needed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is packed (-want +got):\n%s", diff)
	}
}

// TestPortableVMTooLarge: what doesn't stay under the limit is not made.
func TestPortableVMTooLarge(t *testing.T) {
	for _, c := range []struct {
		what, xz, want string
	}{
		{"just small enough", "cat >/dev/null; head -c 30000000 /dev/zero\n", ""},
		{"a byte too large", "cat >/dev/null; head -c 30000001 /dev/zero\n", "30000001 bytes, more than the 30000000"},
		{"no compressor", "exit 1\n", "\n"},
	} {
		t.Run(c.what, func(t *testing.T) {
			out, said, err := pack(t, c.xz)
			_, missing := os.Stat(out)
			if c.want == "" {
				if err != nil || missing != nil {
					t.Errorf("%v, %v: %s", err, missing, said)
				}
				return
			}
			if err == nil || !strings.Contains(said+"\n", c.want) {
				t.Errorf("%v: %q, want %q in it", err, said, c.want)
			}
			if left, err := filepath.Glob(out + "*"); err != nil || len(left) != 0 {
				t.Errorf("it left %v: %v", left, err)
			}
		})
	}
}

// TestPortableVMOfTwo: a file that would take another's place is refused.
func TestPortableVMOfTwo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, file{"vgpud", "another"})
	if _, said, err := pack(t, "cat\n", filepath.Join(dir, "vgpud")); err == nil || !strings.Contains(said, "a vgpud is packed already") {
		t.Errorf("%v: %s", err, said)
	}
}
