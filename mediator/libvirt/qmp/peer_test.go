package qmp

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestProcessThatIsNoQEMU checks a socket whose creator is not a QEMU.
func TestProcessThatIsNoQEMU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qmp")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Process(t.Context(), path); err == nil || !strings.Contains(err.Error(), "created the monitor's socket, but is this program") {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := CheckProcess(1); err == nil {
		t.Error("the first process of the system is taken for a QEMU")
	}
	if err := CheckProcess(1<<31 - 1); err == nil || err.Error() != "does not exist" {
		t.Errorf("a process that is not there: %v", err)
	}
}
