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

// Sockets are the sockets that a guest's process listens on. The daemon creates them, so the
// process needs no right to.
type Sockets struct {
	VMM     *net.UnixListener // vfio-user
	Control *net.UnixListener // for daemons
	// Until is the file of [ipc.Page.SetUntil]; nil if a daemon of an older version created the
	// sockets.
	Until *os.File
}

// UntilFile is the name, in a guest's directory, of the file by which a daemon suspends a guest
// without a connection to its process.
const UntilFile = "suspended"

// Listen creates the VMM's socket at path, owned by owner or, if nil, by the caller's user, and in
// the guest's directory, which is the caller's, the control socket and the [UntilFile]. Their files
// are not removed on Close.
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
	until, err := ipc.NewSuspensionFile(filepath.Join(dir, UntilFile))
	if err != nil {
		return nil, errors.Join(err, vmm.Close(), control.Close())
	}
	return &Sockets{VMM: vmm, Control: control, Until: until}, nil
}

// Files returns copies for a process to inherit, the VMM's socket first.
func (s *Sockets) Files() ([]*os.File, error) {
	vmm, err := s.VMM.File()
	if err != nil {
		return nil, fmt.Errorf("copy a guest's socket: %w", err)
	}
	control, err := s.Control.File()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy a guest's socket: %w", err), vmm.Close())
	}
	until, err := unix.FcntlInt(s.Until.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy a guest's suspension file: %w", err), vmm.Close(), control.Close())
	}
	return []*os.File{vmm, control, os.NewFile(uintptr(until), UntilFile)}, nil
}

// Inherit opens the inherited [Sockets.Files], of which first is the first descriptor.
func Inherit(first uintptr) (*Sockets, error) {
	var s Sockets
	for i, l := range []**net.UnixListener{&s.VMM, &s.Control} {
		f := os.NewFile(first+uintptr(i), "socket")
		inherited, err := net.FileListener(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, errors.Join(fmt.Errorf("inherit a guest's socket: %w", err), s.Close())
		}
		var ok bool
		if *l, ok = inherited.(*net.UnixListener); !ok {
			return nil, errors.Join(fmt.Errorf("inherit a guest's socket: it is a %T", inherited), inherited.Close(), s.Close())
		}
	}
	// A daemon of an older version passes no third file, and the descriptor may be anything.
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
