package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("a\nb\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("somewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := look(&out, []string{filepath.Join(dir, "file"), filepath.Join(dir, "link"), dir}); err != nil {
		t.Fatal(err)
	}
	if want := "a\nb\nsomewhere\nfile\nlink\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if err := look(&out, []string{filepath.Join(dir, "none")}); !os.IsNotExist(err) {
		t.Errorf("nothing there: %v", err)
	}
}
