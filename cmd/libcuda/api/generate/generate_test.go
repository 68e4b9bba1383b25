package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"vgpud/cmd/libcuda/api"
)

var update = flag.Bool("update", false, "write the generated files")

// TestGeneratedFilesAreCurrent compares the committed files with what the description determines.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	a, err := api.Load()
	if err != nil {
		t.Fatal(err)
	}
	files, err := outputs(a)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		path := filepath.Join("../..", path)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // sources are for everybody to read
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the description says: run go generate ./cmd/libcuda/...", path)
		}
	}
}
