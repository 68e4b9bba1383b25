package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestPipesInRunDir: pipes in the place of the daemon's files hold nobody up.
func TestPipesInRunDir(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{lockName, aliveFile} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &Service{o: Options{Config: Config{RunDir: dir, Socket: filepath.Join(dir, "s")}}, log: slog.New(slog.DiscardHandler)}
	for what, f := range map[string]func() error{
		"its lock": func() error {
			f, err := takeRunDir(t.Context(), clock.Real{}, &s.o.Config)
			if err != nil {
				return nil // it may be refused
			}
			_ = holder(filepath.Join(dir, lockName))
			return f.Close()
		},
		"that it is alive": func() error { s.noteAlive(1); return nil },
	} {
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: the pipe is waited for", what)
		}
	}
}
