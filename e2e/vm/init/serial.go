package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openSerial opens a serial port in raw mode: no echo, no line editing, no special characters. It
// discards what was received before.
func openSerial(path string) (*os.File, error) {
	// Without O_NONBLOCK the kernel would wait for a carrier, and Go would need a thread for each
	// read.
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

// setUp sets a terminal's modes, and discards what it has received.
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
