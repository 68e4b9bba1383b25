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

// TestServerWaitsAsLong checks that a server gives a client as long to negotiate as the client gives
// the server to answer.
func TestServerWaitsAsLong(t *testing.T) {
	if got, want := new(Server).negotiation(), (ClientOptions{}).timeout(); got != want {
		t.Errorf("a client has %v to negotiate, and a server has %v", got, want)
	}
	if got := (&Server{Negotiation: time.Second}).negotiation(); got != time.Second {
		t.Errorf("with a limit of a second: %v", got)
	}
}
