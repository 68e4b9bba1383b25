package daemon

import (
	"net"
	"path/filepath"
	"testing"

	"vgpud/clock"
)

// TestLastDaemonsSocketIsWaitedFor: a socket may be open for a moment longer than its daemon lived.
func TestLastDaemonsSocketIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() {
		for range 2 {
			c, err := l.Accept()
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				asked <- err
				return
			}
		}
		asked <- l.Close()
	}()
	if err := awaitUnused(t.Context(), clock.Real{}, path); err != nil {
		t.Error(err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
}
