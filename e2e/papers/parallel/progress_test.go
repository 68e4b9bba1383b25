package parallel

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
)

// TestProgress checks that Map says now and then how far it is, that this changes no result, and
// that it fails where nothing can be written.
func TestProgress(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one result after the other
	var c clock.Sim
	var b strings.Builder
	Show(NewProgress("test", &b, &c, 10*time.Second))
	defer Show(nil)
	results, err := Map(1, func(int) (int, error) { c.Advance(4 * time.Second); return 7, nil })
	if err != nil || len(results) != 1 || results[0] != 7 {
		t.Fatalf("%v, %v, want [7]", results, err)
	}
	if b.Len() != 0 {
		t.Errorf("after 4 s: %q", &b)
	}
	if _, err := Map(3, func(int) (int, error) { c.Advance(6 * time.Second); return 0, nil }); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if diff := cmp.Diff([]string{"test: part 2, 1 of 3 runs, 10s", "test: part 2, 3 of 3 runs, 22s"}, lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	Show(NewProgress("test", full{}, &c, 0))
	if _, err := Map(1, func(int) (int, error) { return 0, nil }); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
}

var errFull = errors.New("full")

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
