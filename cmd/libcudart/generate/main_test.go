package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGeneratedFilesFollowTheDescription fails when api.txt changed and go generate did not run.
func TestGeneratedFilesFollowTheDescription(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: run go generate ./cmd/libcudart/... (-want +got):\n%s", path, diff)
		}
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{
		"cudaMalloc | 11-13 | built",
		"cudaMalloc | x | | built",
		"cudaMalloc | 11-13 | | perhaps",
	} {
		if f, err := parse(text); err == nil {
			t.Errorf("parse(%q) = %v, want an error", text, f)
		}
	}
}
