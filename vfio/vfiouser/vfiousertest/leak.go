package vfiousertest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// CheckLeaks fails the test if it leaves descriptors or goroutines behind. It must be called before
// the test starts anything, in a test that does not run in parallel with others.
func CheckLeaks(t testing.TB) {
	t.Helper()
	warmUp(t)
	fds, goroutines := Descriptors(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		// Goroutines that were told to end need a moment to do so.
		deadline := time.Now().Add(testTimeout)
		for len(Descriptors(t)) > len(fds) || runtime.NumGoroutine() > goroutines {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				t.Errorf("before: %d descriptors, %d goroutines; after: %d, %d\nnew descriptors: %s\n%s", len(fds), goroutines,
					len(Descriptors(t)), runtime.NumGoroutine(), added(fds, Descriptors(t)), stacks)
				return
			}
			runtime.Gosched()
		}
	})
}

// warmUp makes the runtime open descriptors that it keeps, such as its poller.
func warmUp(t testing.TB) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	r.Close()
	w.Close()
}

// Descriptors returns this process's open descriptors and their targets.
func Descriptors(t testing.TB) map[string]string {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("list descriptors: %v", err)
	}
	open := make(map[string]string)
	for _, e := range entries {
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil { // except the one that read the directory
			open[e.Name()] = target
		}
	}
	return open
}

func added(before, after map[string]string) string {
	var b strings.Builder
	for fd, target := range after {
		if before[fd] != target {
			fmt.Fprintf(&b, "%s→%s ", fd, target)
		}
	}
	return b.String()
}
