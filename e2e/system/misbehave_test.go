package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/mischief"
)

// A guest or VMM that misbehaves is a process that runs this test's binary, so that it can be
// killed while it does.
const (
	modeVariable   = "VGPUD_SYSTEM_TEST_MODE"
	socketVariable = "VGPUD_SYSTEM_TEST_SOCKET"
	// atIt is the line that says that the misbehavior is under way.
	atIt = "at it"
)

// misbehave is the guest's process.
func misbehave(mode, socket string) int {
	err := mischief.Do(context.Background(), mode, socket, func() { fmt.Println(atIt) })
	fmt.Println("ended:", err)
	return 1
}

// attacker is a guest's process that misbehaves.
type attacker struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines io.ReadCloser
	ended bool
}

// newAttacker starts a process that attaches to a virtual GPU, and waits until it has misbehaved at
// least once.
func newAttacker(t *testing.T, mode, socket string) *attacker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &attacker{t: t, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), modeVariable+"="+mode, socketVariable+"="+socket)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if c.lines, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(c.lines).ReadString('\n')
	if line != atIt+"\n" {
		t.Fatalf("guest that %q said %q, %v", mode, line, err)
	}
	return c
}

// kill ends the process without warning.
func (c *attacker) kill() {
	c.t.Helper()
	if c.ended {
		return
	}
	c.ended = true
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Error(err)
	}
	if err := c.cmd.Wait(); err == nil {
		c.t.Error("a guest that was killed ended by itself")
	}
}
