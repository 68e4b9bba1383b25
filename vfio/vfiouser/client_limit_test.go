package vfiouser

import (
	"testing"
	"time"
)

// TestSlowServerIsWaitedFor checks that a client does not take a server for dead that needs a few
// times as long as QEMU's 5 s, as one on a busy host may, and yet gives up in the end. How a limit
// is kept, TestServerThatDoesNotAnswer checks.
func TestSlowServerIsWaitedFor(t *testing.T) {
	if got := (ClientOptions{}).timeout(); got < 50*time.Second || got > 2*time.Minute {
		t.Errorf("a server that does not answer is waited for %v", got)
	}
	if got := (ClientOptions{Timeout: time.Second}).timeout(); got != time.Second {
		t.Errorf("with a limit of a second: %v", got)
	}
}
