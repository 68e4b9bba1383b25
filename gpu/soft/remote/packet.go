package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/internal/unixmsg"
)

// send sends a packet with files, which remain the caller's.
func send(c *net.UnixConn, b []byte, files ...*os.File) error {
	if len(b) > maxPacket {
		return fmt.Errorf("send %d bytes: want at most %d", len(b), maxPacket)
	}
	if _, err := unixmsg.Write(c, b, unixmsg.FDs(files)...); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// receive receives a packet into buf, which must have room for maxPacket, and its files, which the
// caller owns. It returns io.EOF at the end of the connection.
func receive(c *net.UnixConn, buf []byte) ([]byte, []*os.File, error) {
	var control [256]byte
	m, err := unixmsg.Read(c, buf, control[:])
	switch {
	case errors.Is(err, net.ErrClosed), err == nil && m.Bytes == 0 && m.Files == nil:
		err = io.EOF
	case err != nil:
	case m.Truncated:
		err = fmt.Errorf("packet is too long: want at most %d bytes and %d files", maxPacket, maxFiles)
	case len(m.Files) > maxFiles:
		err = fmt.Errorf("packet has %d files: want at most %d", len(m.Files), maxFiles)
	}
	if err != nil {
		return nil, nil, errors.Join(err, unixmsg.CloseAll(m.Files))
	}
	return buf[:m.Bytes], m.Files, nil
}

// writeMemfd writes b to a file in memory. The caller closes it.
func writeMemfd(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("vgpud-soft-message", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a message's file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-soft-message")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(fmt.Errorf("write a message's file: %w", err), f.Close())
	}
	return f, nil
}

// readFile reads at most maxImage bytes of a file that another process wrote. It does not map the
// file, so that the bytes can't change or disappear while they are parsed.
func readFile(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at a message's file: %w", err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxImage {
		return nil, fmt.Errorf("message's file is %v of %d bytes: want a regular one of at most %d", st.Mode(), st.Size(), maxImage)
	}
	b := make([]byte, st.Size())
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read a message's file: %w", err)
	}
	return b[:n], nil
}
