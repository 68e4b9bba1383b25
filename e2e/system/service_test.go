package system

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
)

// TestService runs the daemon under a service manager of the test, which receives what systemd
// would, and restarts the daemon while a guest works.
func TestService(t *testing.T) {
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
	h.StartDaemon()
	// until waits for a message that begins like this, ignoring watchdog messages.
	until := func(want string) {
		t.Helper()
		b := make([]byte, 1<<10)
		for {
			if err := manager.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("waited for %s: %v", want, err)
			}
			got := string(b[:n])
			if strings.HasPrefix(got, want) {
				return
			}
			if got != "WATCHDOG=1" {
				t.Fatalf("heard %q, want %q", got, want)
			}
		}
	}
	until("READY=1")
	until("WATCHDOG=1")
	by.goesOn()
	if err := h.Daemon.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("RELOADING=1\nMONOTONIC_USEC=")
	until("READY=1")
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	until("STOPPING=1")
	by.goesOn()
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	h.Until("the guest", func() error {
		if v := h.VM("bystander"); !v.Attached || v.Contexts != 1 {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	by.goesOn()
}

// TestUnits compares the units in deploy with what the daemon needs of them.
func TestUnits(t *testing.T) {
	for unit, wants := range map[string][]string{
		"vgpud.service": {
			"Type=notify", "KillMode=process", "RuntimeDirectory=vgpud", "RuntimeDirectoryMode=0711", "RuntimeDirectoryPreserve=yes",
			"WatchdogSec=", "OOMPolicy=continue", "ExecReload=/bin/kill -HUP $MAINPID", "CapabilityBoundingSet=CAP_CHOWN CAP_SYS_NICE CAP_SETUID CAP_SETGID CAP_KILL CAP_SYS_ADMIN", "DelegateSubgroup=serve", "SystemCallFilter=@system-service @mount seccomp", "LimitNICE=-15",
		},
		"vgpud-softgpu@.service": {"Type=notify", "RuntimeDirectoryPreserve=yes", "RuntimeDirectoryMode=0711"},
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "deploy", unit))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wants {
			if !strings.Contains(string(b), "\n"+w) {
				t.Errorf("%s lacks %s", unit, w)
			}
		}
		for line := range strings.Lines(string(b)) {
			switch {
			case strings.HasPrefix(line, "RestrictRealtime="):
				t.Errorf("%s: %s takes SCHED_FIFO away", unit, line)
			case unit == "vgpud.service" && strings.HasPrefix(line, "RestrictNamespaces=") && strings.TrimSpace(line) != "RestrictNamespaces=mnt net ipc":
				t.Errorf("%s: %s takes guests' namespaces away", unit, line)
			}
		}
	}
}
