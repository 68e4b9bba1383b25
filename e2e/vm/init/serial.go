package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openSerial opens a serial port for bytes as they are: no echo, no line
// editing, no characters with a meaning. What it received before is dropped.
func openSerial(path string) (*os.File, error) {
	// Without O_NONBLOCK the kernel would wait for a carrier, and Go for a
	// thread of each read.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	raw := unix.Termios{
		Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200,
	}
	raw.Cc[unix.VMIN] = 1
	if err := setUp(f, &raw); err != nil {
		f.Close()
		return nil, fmt.Errorf("set up %s: %w", path, err)
	}
	return f, nil
}

// setUp gives a terminal its modes, and drops what it has received.
func setUp(f *os.File, modes *unix.Termios) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		if serr = unix.IoctlSetTermios(int(fd), unix.TCSETS, modes); serr == nil {
			serr = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH)
		}
	})
	if err != nil {
		return err
	}
	return serr
}
