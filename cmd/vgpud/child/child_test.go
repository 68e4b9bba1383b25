package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// shell starts a script that prints "ready" to its log.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(t.TempDir(), "script", exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var errNotReady = errors.New("it is not ready")

func (p *Process) ready() error {
	if b, err := os.ReadFile(p.Log); err != nil || !strings.Contains(string(b), "ready") {
		return errors.Join(errNotReady, err)
	}
	return nil
}

func TestEndsWhenTold(t *testing.T) {
	p := shell(t, "trap 'exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done")
	if err := WaitUntil(t.Context(), p, p.ready); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.End(), p.Err()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(p.End(), p.Kill()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestAnEndInFailureIsTold(t *testing.T) {
	p := shell(t, "echo no such thing >&2; exit 3")
	err := WaitUntil(t.Context(), p, func() error { return errNotReady })
	if err == nil || !strings.Contains(err.Error(), "no such thing") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("waited for: %v", err)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("its end: %v", err)
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	p := shell(t, "sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := WaitUntil(ctx, p, func() error { return errNotReady })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errNotReady) {
		t.Errorf("%v", err)
	}
}

// TestSignalsOfTheTerminalAreNotItsOwn checks that a terminal's interrupt reaches only the parent,
// which ends its children in order.
func TestSignalsOfTheTerminalAreNotItsOwn(t *testing.T) {
	p := shell(t, "sleep 60")
	group, err := unix.Getpgid(p.Cmd.Process.Pid)
	if err != nil || group == unix.Getpgrp() {
		t.Errorf("its group is %d, and ours, %v", group, err)
	}
}

func TestTail(t *testing.T) {
	log := t.TempDir() + "/log"
	if got := Tail(log); got != "" {
		t.Errorf("of no log: %q", got)
	}
	if err := os.WriteFile(log, []byte(strings.Repeat("x", 3000)+" end\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Tail(log); len(got) != 2001 || !strings.HasPrefix(got, "\nx") || !strings.HasSuffix(got, "x end") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
