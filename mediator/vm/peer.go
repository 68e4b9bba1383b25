package vm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
	"vgpud/vfio/vfiouser"
)

// admission decides who may connect to the guest's VMM socket. All VMMs of a
// host may run as one user, so that the socket's owner and mode alone don't keep
// them apart; the kernel says which process it is that connects (SO_PEERCRED).
//
// A VMM shows its user no more of a refusal than the error number's text:
// "Permission denied" is the wrong user, "Operation not permitted" the wrong
// process, and "Resource temporarily unavailable" that it can't be known yet.
type admission struct {
	uid  uint32    // the socket's owner
	peer *ipc.Peer // nil: any process of the owner's
}

// admit is the rule for a guest's socket.
func admit(spec *ipc.Spec, owner *vfiouser.Owner) admission {
	a := admission{uid: uint32(os.Geteuid()), peer: spec.Peer}
	if owner != nil && owner.UID >= 0 {
		a.uid = uint32(owner.UID)
	}
	return a
}

// check says why a process may not connect; nil: it may. Root may be any user.
func (a admission) check(p vfiouser.Peer) error {
	if p.UID != a.uid && p.UID != 0 {
		return fmt.Errorf("user %d, while the socket is user %d's: %w", p.UID, a.uid, syscall.EACCES)
	}
	if a.peer == nil {
		return nil
	}
	want := a.peer.PID
	if a.peer.PIDFile != "" {
		var err error
		if want, err = readPID(a.peer.PIDFile); err != nil {
			return fmt.Errorf("which process may connect is not known: %w: %w", err, syscall.EAGAIN)
		}
	}
	if int(p.PID) != want {
		return fmt.Errorf("process %d, while the guest's VMM is process %d: %w", p.PID, want, syscall.EPERM)
	}
	return nil
}

// maxPIDFile is more than a number needs.
const maxPIDFile = 32

// readPID reads a process's number from a file that nobody but root and this
// process's user can have written.
func readPID(path string) (pid int, err error) {
	// A pipe must not have the guest wait.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, hideErrno(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return 0, hideErrno(err)
	}
	if !st.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is no regular file", path)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid != 0 && int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return 0, fmt.Errorf("%s can be written to by others than root and the daemon's user", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPIDFile+1))
	if err != nil {
		return 0, hideErrno(err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || len(text) > maxPIDFile || pid <= 0 {
		return 0, fmt.Errorf("%s holds %q, no process's number", path, text)
	}
	return pid, nil
}

// hideErrno is err's text: its number would be taken for the refusal's.
func hideErrno(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error() + " (is the VMM running?)")
	}
	return errors.New(err.Error())
}
