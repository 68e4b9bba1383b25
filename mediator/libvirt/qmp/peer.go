package qmp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"vgpud/internal/unixmsg"
)

// Process returns the PID of the QEMU that listens on its monitor's socket. QEMU creates that
// socket itself (server=on). If it inherited the socket, the kernel names the creator, which is an
// error unless that is a QEMU too.
func Process(ctx context.Context, socket string) (pid int, err error) {
	var d net.Dialer
	// The monitor serves one client at a time. This connection is not accepted, which the kernel
	// does not need in order to name the listener.
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find the process that listens on %s: %w", socket, explain(err))
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	cred, err := unixmsg.Peer(conn.(*net.UnixConn))
	if err != nil {
		return 0, fmt.Errorf("find the process that listens on %s: %w", socket, err)
	}
	pid = int(cred.Pid)
	if err := CheckProcess(pid); err != nil {
		return pid, fmt.Errorf("process %d created the monitor's socket, but %w", pid, err)
	}
	return pid, nil
}

// CheckProcess returns an error if a process can't be a VM's QEMU: if it is this program, or its
// command line does not contain "qemu". The error's text follows the process's name: "is not a
// QEMU".
func CheckProcess(pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	exe, err := os.Stat(dir + "exe")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("does not exist")
	case err != nil:
		return fmt.Errorf("can't be inspected: %w", err)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, exe) {
		return errors.New("is this program")
	}
	line, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return fmt.Errorf("can't be inspected: %w", err)
	}
	if !bytes.Contains(bytes.ToLower(line), []byte("qemu")) {
		return errors.New("is not a QEMU")
	}
	return nil
}
