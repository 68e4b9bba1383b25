package suspend

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestIntentsKeepToThemselves(t *testing.T) {
	dir := t.TempDir()
	n, err := NewIntents(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"README", "-3", "a-b", "x-", "a-999"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(n.Add("a-1", 2), n.Add("a-1", 2), n.Add("a", 12), n.Remove("a", 11), n.Remove("b", 0))
	if err != nil {
		t.Fatal(err)
	}
	noted, err := n.List()
	if err != nil || len(noted) != 2 || !slices.Equal(noted["a-1"], []int{2}) || !slices.Equal(noted["a"], []int{12}) {
		t.Errorf("noted %v, %v", noted, err)
	}
}

// TestIntentOverAPipe: a pipe in a record's place is refused, and does not block.
func TestIntentOverAPipe(t *testing.T) {
	n, err := NewIntents(t.TempDir())
	if err == nil {
		err = unix.Mkfifo(n.path("a", 0), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Add("a", 0) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it is taken for a note")
		}
	case <-time.After(2 * time.Minute):
		t.Error("it is waited for")
	}
}
