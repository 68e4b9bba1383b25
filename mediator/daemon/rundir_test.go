package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/clock"
)

// TestRunDirIsTaken: a second daemon is refused with the PID of the first, until that has ended.
func TestRunDirIsTaken(t *testing.T) {
	c := Config{RunDir: t.TempDir()}
	c.setDefaults()
	first, err := takeRunDir(t.Context(), clock.Real{}, &c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = takeRunDir(t.Context(), clock.Real{}, &c)
	want := fmt.Sprintf("another daemon (PID %d) has run_dir %s: end it first", os.Getpid(), c.RunDir)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second daemon: %v, want %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := takeRunDir(t.Context(), clock.Real{}, &c)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

func TestRunDirIsMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{RunDir: dir + "/none"}, "run_dir " + dir + "/none does not exist: create it (mkdir -p -m 0711 " + dir + "/none), or configure another"},
		{Config{RunDir: dir, Socket: dir + "/none/s"}, "the directory of socket " + dir + "/none does not exist"},
		{Config{RunDir: file}, "run_dir " + file + " is not a directory"},
	} {
		c.config.setDefaults()
		_, err := takeRunDir(t.Context(), clock.Real{}, &c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
