package qmp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	pid = int(cred.Pid)
	if err := CheckProcess(pid); err != nil {
		return pid, fmt.Errorf("process %d made the monitor's socket, and %w", pid, err)
	}
	return pid, nil
}

// CheckProcess says whether a process can be a VM's QEMU: not this program, and
// with a command line that names it. Its error goes behind the process's name:
// "is no QEMU".
func CheckProcess(pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	exe, err := os.Stat(dir + "exe")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("is not there")
	case err != nil:
		return fmt.Errorf("is not to be looked at: %w", err)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, exe) {
		return errors.New("is this program")
	}
	line, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return fmt.Errorf("is not to be looked at: %w", err)
	}
	if !bytes.Contains(bytes.ToLower(line), []byte("qemu")) {
		return errors.New("is no QEMU")
	}
	return nil
}
