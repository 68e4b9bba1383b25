package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Names of the monitors' sockets in a VM's directory.
const (
	monitorSocket = "monitor.sock" // for this package
	qmpSocket     = "qmp.sock"     // for another program
)

// firstFD is the number of the first inherited file in QEMU.
const firstFD = 3

// sockets holds the sockets that QEMU inherits and our ends of the connected ones. The monitors'
// sockets listen before QEMU starts, so clients need not wait until QEMU has created them.
type sockets struct {
	theirs         [4]*os.File // monitor, qmp, console, guest
	console, guest net.Conn
}

// numbers returns the numbers of theirs in QEMU.
func (s *sockets) numbers() files {
	return files{monitor: firstFD, qmp: firstFD + 1, console: firstFD + 2, guest: firstFD + 3}
}

func newSockets(dir string) (_ *sockets, err error) {
	s := &sockets{}
	defer func() {
		if err != nil {
			s.closeOurs()
			s.closeTheirs()
		}
	}()
	if s.theirs[0], err = listen(filepath.Join(dir, monitorSocket)); err != nil {
		return nil, err
	}
	if s.theirs[1], err = listen(filepath.Join(dir, qmpSocket)); err != nil {
		return nil, err
	}
	if s.console, s.theirs[2], err = pair("console"); err != nil {
		return nil, err
	}
	if s.guest, s.theirs[3], err = pair("guest"); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *sockets) closeTheirs() {
	for i, f := range s.theirs {
		if f != nil {
			f.Close()
			s.theirs[i] = nil
		}
	}
}

func (s *sockets) closeOurs() {
	for _, c := range []net.Conn{s.console, s.guest} {
		if c != nil {
			c.Close()
		}
	}
}

// listen makes a socket at path and replaces one that an earlier VM left.
func listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// pair makes two connected sockets: ours to use, and theirs to be inherited.
func pair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connect QEMU's %s: %w", name, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("connect QEMU's %s: %w", name, err)
	}
	return conn, theirs, nil
}
