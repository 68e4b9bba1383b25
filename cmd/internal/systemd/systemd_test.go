package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := Notify("WATCHDOG=1"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := l.Read(b); err != nil || string(b[:n]) != "WATCHDOG=1" {
		t.Errorf("told %q, %v", b[:n], err)
	}
}

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		pid, usec string
		want      time.Duration
	}{
		{"", "", 0},
		{"", "30000000", 30 * time.Second},
		{strconv.Itoa(os.Getpid()), "1000", time.Millisecond},
		{"1", "30000000", 0},
		{"", "-1", 0},
		{"", "99999999999999999999", 0},
	} {
		t.Setenv("WATCHDOG_PID", c.pid)
		t.Setenv("WATCHDOG_USEC", c.usec)
		if got := Watchdog(); got != c.want {
			t.Errorf("pid %q, %q µs: %v, want %v", c.pid, c.usec, got, c.want)
		}
	}
}
