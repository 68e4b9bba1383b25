package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"vgpud/e2e/host"
)

// timeout bounds any wait, on a busy machine.
const timeout = 3 * time.Minute

// until waits until ok returns no error.
func until(tb testing.TB, what string, ok func() error) {
	tb.Helper()
	host.Until(tb, timeout, what, ok)
}

// process is a program that runs.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // set when ended is closed
}

// start starts a program, which ends with the test. If the test has failed, the end of the program's log is
// shown, which is in dir.
func start(tb testing.TB, dir, program string, args ...string) *process {
	tb.Helper()
	f, err := os.CreateTemp(dir, filepath.Base(program)+"-*.log")
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: exec.Command(program, args...), log: f.Name(), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, f, f
	err = p.cmd.Start()
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	tb.Cleanup(func() {
		p.kill(tb)
		if text, err := os.ReadFile(p.log); tb.Failed() {
			tb.Logf("log of %s: %v\n%s", filepath.Base(program), err, text[max(0, len(text)-6<<10):])
		}
	})
	return p
}

// kill ends a process by SIGKILL, and waits for its end.
func (p *process) kill(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		tb.Error(err)
	}
	<-p.ended
}

// await waits until ok returns no error, while the process runs.
func (p *process) await(tb testing.TB, what string, ok func() error) {
	tb.Helper()
	until(tb, what, func() error {
		select {
		case <-p.ended:
			tb.Fatalf("%v ended: %v", p.cmd.Args, p.err)
		default:
		}
		return ok()
	})
}

// freeAddress returns a local address on whose port nobody listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return address
}

// port returns an address's port.
func port(tb testing.TB, address string) string {
	tb.Helper()
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// write writes a file of the control plane's.
func write(tb testing.TB, path, format string, args ...any) string {
	tb.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
