package qmp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Process is the number of the QEMU process that listens on its monitor's socket.
// QEMU makes that socket itself (server=on); where it was handed one, the kernel
// names who made it, which is an error unless that is a QEMU too.
func Process(ctx context.Context, socket string) (pid int, err error) {
	var d net.Dialer
	// The monitor serves one client at a time: this connection is not accepted, and
	// need not be for the kernel to say who listens.
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find who listens on %s: %w", socket, explain(err))
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find who listens on %s: %w", socket, err)
	}
	var cred *unix.Ucred
	var cerr error
	if err := errors.Join(raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}), cerr); err != nil {
		return 0, fmt.Errorf("find who listens on %s: %w", socket, err)
	}
	return int(cred.Pid), CheckProcess(int(cred.Pid))
}

// CheckProcess says whether a process can be a VM's QEMU: not this program, and
// with a command line that names it.
func CheckProcess(pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	exe, err := os.Stat(dir + "exe")
	if err != nil {
		return fmt.Errorf("process %d, which listens on the monitor's socket: %w", pid, err)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, exe) {
		return fmt.Errorf("process %d, which listens on the monitor's socket, is this program", pid)
	}
	line, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return fmt.Errorf("process %d, which listens on the monitor's socket: %w", pid, err)
	}
	if !bytes.Contains(bytes.ToLower(line), []byte("qemu")) {
		return fmt.Errorf("process %d made the monitor's socket, and is no QEMU", pid)
	}
	return nil
}
