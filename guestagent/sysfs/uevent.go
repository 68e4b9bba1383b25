package sysfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Event is the kernel's message that a device has come, gone or changed drivers.
type Event struct {
	// Action is "add", "remove", "bind", "unbind" or "change".
	Action string
	// Address is that of the PCI function.
	Address string
}

// Uevents is the kernel's stream of events about devices (netlink, group 1). It needs no privilege.
type Uevents struct{ file *os.File }

// eventBytes bounds an event. The kernel's own bound is 2048 bytes of variables and a path.
const eventBytes = 8 << 10

// receiveBytes is how much the kernel buffers between two reads.
const receiveBytes = 1 << 20

// ListenUevents opens the stream; events from then on can be read. Close must be called to free it.
func ListenUevents() (*Uevents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen to device events: %w", err)
	}
	// The default can be too small if a whole bus is plugged; a lost event shows as ENOBUFS.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBytes)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to device events: %w", err), unix.Close(fd))
	}
	return &Uevents{file: os.NewFile(uintptr(fd), "uevents")}, nil
}

// ErrMissed means that events were lost: the caller must rescan everything.
var ErrMissed = errors.New("device events were missed")

// Next waits for the next event about a PCI function. It can be called again after [ErrMissed]. It
// returns os.ErrClosed after Close and the context's error when the context ends.
func (u *Uevents) Next(ctx context.Context) (Event, error) {
	stop := context.AfterFunc(ctx, func() { _ = u.file.Close() })
	defer stop()
	var buf [eventBytes]byte
	for {
		n, err := u.file.Read(buf[:])
		switch {
		case ctx.Err() != nil:
			return Event{}, context.Cause(ctx)
		case errors.Is(err, unix.ENOBUFS):
			return Event{}, ErrMissed
		case err != nil:
			return Event{}, fmt.Errorf("read device events: %w", err)
		}
		if e, ok := parseUevent(buf[:n]); ok {
			return e, nil
		}
	}
}

// Close ends the stream and any Next under way.
func (u *Uevents) Close() error { return u.file.Close() }

// parseUevent parses one message: "ACTION@DEVPATH", then variables, each ended by a zero byte. It
// returns false for a message that is no event of a PCI function.
func parseUevent(b []byte) (Event, bool) {
	var e Event
	head, rest, ok := bytes.Cut(b, []byte{0})
	if _, _, at := bytes.Cut(head, []byte("@")); !ok || !at {
		return e, false // such as udevd's own messages
	}
	var subsystem, devpath string
	for variable := range bytes.SplitSeq(rest, []byte{0}) {
		name, value, _ := strings.Cut(string(variable), "=")
		switch name {
		case "ACTION":
			e.Action = value
		case "SUBSYSTEM":
			subsystem = value
		case "DEVPATH":
			devpath = value
		case "PCI_SLOT_NAME":
			e.Address = value
		}
	}
	if e.Address == "" { // "remove" and "unbind" of older kernels have no slot name
		e.Address = path.Base(devpath)
	}
	return e, subsystem == "pci" && e.Action != "" && devpath != ""
}
