package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager returns the socket of a service manager.
func manager(t *testing.T, abstract bool) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	name := path
	if abstract {
		name = "@vgpud-test-" + fmt.Sprint(os.Getpid())
		path = "\x00" + name[1:]
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("NOTIFY_SOCKET", name)
	return c
}

// receive returns the next message.
func receive(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<10)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	for _, abstract := range []bool{false, true} {
		m := manager(t, abstract)
		if err := Notify("READY=1"); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, m); got != "READY=1" {
			t.Errorf("received %q", got)
		}
		if err := Notify(Reloading()...); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, m); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+$`).MatchString(got) {
			t.Errorf("received %q", got)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := Notify("READY=1"); err == nil || !strings.Contains(err.Error(), "service manager") {
		t.Errorf("to nobody: %v", err)
	}
}

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		pid, usec string
		want      time.Duration
	}{
		{"", "", 0},
		{"", "30000000", 30 * time.Second},
		{fmt.Sprint(os.Getpid()), "1000", time.Millisecond},
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

// TestAdvances tests that a daemon counts as alive until its first round has ended, and then once for
// each time that rounds have.
func TestAdvances(t *testing.T) {
	var rounds atomic.Uint64
	alive := Advances(&rounds)
	for i, c := range []struct {
		ended uint64
		want  bool
	}{{0, true}, {0, true}, {1, true}, {0, false}, {2, true}, {0, false}, {0, false}} {
		rounds.Add(c.ended)
		if got := alive(); got != c.want {
			t.Errorf("question %d, after %d rounds: %v, want %v", i, rounds.Load(), got, c.want)
		}
	}
}

// TestFeedWatchdog checks that a stuck daemon feeds no watchdog.
func TestFeedWatchdog(t *testing.T) {
	m := manager(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	asked, done := make(chan bool), make(chan struct{})
	go func() {
		defer close(done)
		FeedWatchdog(ctx, time.Millisecond, slog.New(slog.DiscardHandler), func() bool {
			select {
			case alive := <-asked:
				return alive
			case <-ctx.Done():
				return false
			}
		})
	}()
	for range 3 {
		asked <- false
	}
	asked <- true
	if got := receive(t, m); got != "WATCHDOG=1" {
		t.Errorf("received %q", got)
	}
	asked <- false
	cancel()
	<-done
	if err := m.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := m.Read(make([]byte, 100)); err == nil {
		t.Errorf("received %d more bytes", n)
	}
}
