package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// send sends a packet with files, which stay the caller's.
func send(c *net.UnixConn, b []byte, files ...*os.File) error {
	if len(b) > maxPacket {
		return fmt.Errorf("send %d bytes: want at most %d", len(b), maxPacket)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// receive receives a packet into buf, which must have room for maxPacket, and its files, which are the caller's. The
// end of the connection is io.EOF.
func receive(c *net.UnixConn, buf []byte) ([]byte, []*os.File, error) {
	var oob [256]byte
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob[:])
	files, ferr := filesOf(oob[:oobn])
	switch {
	case err != nil:
		if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		return nil, nil, errors.Join(err, closeAll(files))
	case ferr != nil:
		return nil, nil, errors.Join(ferr, closeAll(files))
	case n == 0 && oobn == 0:
		return nil, nil, io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, nil, errors.Join(fmt.Errorf("packet is too long: want at most %d bytes and %d files", maxPacket, maxFiles),
			closeAll(files))
	case len(files) > maxFiles:
		return nil, nil, errors.Join(fmt.Errorf("packet has %d files: want at most %d", len(files), maxFiles), closeAll(files))
	}
	return buf[:n], files, nil
}

// filesOf is every file in a control message, so that each can be closed, whatever else is wrong.
func filesOf(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read a packet's files: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another type; it carries no descriptor
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// put writes b into a file in memory. The caller closes it.
func put(b []byte) (*os.File, error) {
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

// take reads a file that somebody else wrote: at most maxImage bytes of it. It is read and not mapped, so that it can't
// change or vanish while it is parsed.
func take(f *os.File) ([]byte, error) {
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
