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

// admission decides which processes may connect to the guest's VMM socket. All VMMs of a host may
// run as one user, so the socket's owner and mode don't separate them; the kernel tells which
// process connects (SO_PEERCRED).
//
// A VMM shows its user only the error number's text of a refusal: "Permission denied" for the wrong
// user, "Operation not permitted" for the wrong process, "Resource temporarily unavailable" if the
// right process is not known yet.
type admission struct {
	uid  uint32    // the socket's owner
	peer *ipc.Peer // nil: any process of the owner's
}

// admit returns the rule for a guest's socket.
func admit(spec *ipc.Spec, owner *vfiouser.Owner) admission {
	a := admission{uid: uint32(os.Geteuid()), peer: spec.Peer}
	if owner != nil && owner.UID >= 0 {
		a.uid = uint32(owner.UID)
	}
	return a
}

// check returns the reason why a process may not connect, or nil. Root may always be the user.
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
			return fmt.Errorf("the process that may connect is not known: %w: %w", err, syscall.EAGAIN)
		}
	}
	if int(p.PID) != want {
		return fmt.Errorf("process %d, while the guest's VMM is process %d: %w", p.PID, want, syscall.EPERM)
	}
	return nil
}

// maxPIDFile bounds the file's size in bytes.
const maxPIDFile = 32

// readPID reads a PID from a file that only root and this process's user can have written.
func readPID(path string) (pid int, err error) {
	// O_NONBLOCK: a pipe must not block the guest.
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
		return 0, fmt.Errorf("users other than root and the daemon's can write to %s", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPIDFile+1))
	if err != nil {
		return 0, hideErrno(err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || len(text) > maxPIDFile || pid <= 0 {
		return 0, fmt.Errorf("%s holds %q, which is no PID", path, text)
	}
	return pid, nil
}

// hideErrno keeps only err's text, because its error number would be taken for the refusal's.
func hideErrno(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error() + " (is the VMM running?)")
	}
	return errors.New(err.Error())
}
