package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
	"vgpud/vfio/vfiouser"
)

// Sockets are what a guest's process listens on. The daemon makes them, so that
// the process needs no right to.
type Sockets struct {
	VMM     *net.UnixListener // vfio-user
	Control *net.UnixListener // for daemons
	// Until is the file of [ipc.Page.SetUntil]; nil: a daemon of an older version made
	// the others.
	Until *os.File
}

// UntilFile is the name, in a guest's directory, of the file by which a daemon suspends
// a guest whose process it has not met.
const UntilFile = "suspended"

// Listen makes the socket at path for the VMM, who is owner, or the caller's user
// where that is nil, and in the guest's directory, which is the caller's, the control
// socket and the [UntilFile]. Nobody removes their files.
func Listen(path string, owner *vfiouser.Owner, dir string) (*Sockets, error) {
	vmm, err := vfiouser.Listen(path, owner)
	if err != nil {
		return nil, err
	}
	control, err := listenControl(filepath.Join(dir, ControlSocket))
	if err != nil {
		return nil, errors.Join(err, vmm.Close())
	}
	vmm.SetUnlinkOnClose(false)
	control.SetUnlinkOnClose(false)
	until, err := ipc.NewUntil(filepath.Join(dir, UntilFile))
	if err != nil {
		return nil, errors.Join(err, vmm.Close(), control.Close())
	}
	return &Sockets{VMM: vmm, Control: control, Until: until}, nil
}

// Files are the sockets as a process can inherit them, the VMM's first.
func (s *Sockets) Files() ([]*os.File, error) {
	vmm, err := s.VMM.File()
	if err != nil {
		return nil, fmt.Errorf("hand over a guest's socket: %w", err)
	}
	control, err := s.Control.File()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hand over a guest's socket: %w", err), vmm.Close())
	}
	until, err := unix.FcntlInt(s.Until.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hand over a guest's suspension: %w", err), vmm.Close(), control.Close())
	}
	return []*os.File{vmm, control, os.NewFile(uintptr(until), UntilFile)}, nil
}

// Inherit takes over what [Sockets.Files] handed over: first is the number of the
// first descriptor.
func Inherit(first uintptr) (*Sockets, error) {
	var s Sockets
	for i, l := range []**net.UnixListener{&s.VMM, &s.Control} {
		f := os.NewFile(first+uintptr(i), "socket")
		inherited, err := net.FileListener(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, errors.Join(fmt.Errorf("take over a guest's socket: %w", err), s.Close())
		}
		var ok bool
		if *l, ok = inherited.(*net.UnixListener); !ok {
			return nil, errors.Join(fmt.Errorf("take over a guest's socket: it is a %T", inherited), inherited.Close(), s.Close())
		}
	}
	// A daemon of an older version hands over none, and the number is whatever else's.
	const third = 2
	var st unix.Stat_t
	if err := unix.Fstat(int(first+third), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		unix.CloseOnExec(int(first + third))
		s.Until = os.NewFile(first+third, UntilFile)
	}
	return &s, nil
}

// Close closes those that are open.
func (s *Sockets) Close() error {
	var errs []error
	for _, l := range []*net.UnixListener{s.VMM, s.Control} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.Until != nil {
		if err := s.Until.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
