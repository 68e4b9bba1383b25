package host

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProgramsThatAreBuilt takes programs from a directory, as tests of `make test` do.
func TestProgramsThatAreBuilt(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"vgpud", "vgpuctl"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(ProgramsVariable, from)
	for range 2 { // the second call finds them in place
		dir, err := Programs()
		if err != nil {
			t.Fatal(err)
		}
		if dir == from {
			t.Error("it is the directory itself: tests find processes by their programs' paths")
		}
		for _, name := range []string{"vgpud", "vgpuctl"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != name {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
	}
	if _, err := Programs("vgpu-hook"); err == nil || !strings.Contains(err.Error(), "`make build`") {
		t.Errorf("without vgpu-hook: %v", err)
	}
	if err := Cleanup(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(from, "vgpud")); err != nil {
		t.Errorf("what was built is gone: %v", err)
	}
}

func TestCopyProgram(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(from, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := copyProgram(from, to); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 10 || info.Mode().Perm()&0o111 != 0o111 {
		t.Errorf("%d bytes, mode %v", info.Size(), info.Mode())
	}
}

// TestTags holds that all of `make test` has the same build tags. With others, the same packages
// would be compiled once more.
func TestTags(t *testing.T) {
	for _, c := range []struct{ file, pattern string }{
		{"Makefile", `(?m)^TAGS +:= (\S+)$`},
		{"scripts/lint.sh", `-tags[= ](\S+)`},
		{"scripts/unit.sh", `-tags[= ]([\w,]+)`},
		{"scripts/vm-deps.sh", `-tags[= ](\S+)`},
	} {
		b, err := os.ReadFile(filepath.Join("../..", c.file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Errorf("%s has no tags", c.file)
		}
		for _, m := range found {
			if m[1] != Tags {
				t.Errorf("%s: %s, not %s", c.file, m[1], Tags)
			}
		}
	}
}
