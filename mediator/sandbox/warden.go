package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// Mode says what is done where the host cannot confine guests in every way.
type Mode string

const (
	// Auto leaves out what cannot be done, and says so.
	Auto Mode = "auto"
	// Required has the daemon refuse to start.
	Required Mode = "required"
	// Off confines nothing, such as to look into executors with a debugger.
	Off Mode = "off"
)

// Options are what a warden works by.
type Options struct {
	Mode Mode
	UIDs UIDs
	// Cgroup is the delegated control group of version 2 to make guests' groups
	// in: empty is the one that systemd delegated to the daemon, [NoCgroup] none.
	Cgroup string
	Limits Limits
	// Program is what guests' processes execute, and Sockets are soft GPUs': files
	// that a user who is nobody else must be able to reach.
	Program string
	Sockets []string
}

// NoCgroup has guests stay in the daemon's control group.
const NoCgroup = "off"

// Warden gives guests their cells. Its methods may be called from any goroutine.
// A nil one shares and misses nothing.
type Warden struct {
	mode    Mode
	uids    UIDs
	users   bool // guests have users of their own
	mounts  bool // and mounts
	groups  *groups
	missing []string

	mu   sync.Mutex
	pool *pool
}

// NewWarden finds out what this host and this process's rights allow. The error is
// that what is required cannot be done.
func NewWarden(o Options) (*Warden, error) {
	if o.UIDs == (UIDs{}) {
		o.UIDs = DefaultUIDs
	}
	w := &Warden{mode: o.Mode, uids: o.UIDs, pool: newPool(o.UIDs)}
	w.pool.runs = hasProcesses
	if w.mode == Off {
		w.missing = []string{"everything: confinement.mode is off"}
		return w, nil
	}
	lack := func(what string, err error) bool {
		if err != nil {
			w.missing = append(w.missing, what+": "+err.Error())
		}
		return err == nil
	}
	w.users = lack("users of their own", usersAllowed(&o))
	w.mounts = lack("a view of devices of their own", onThread(func() error { return enterMounts(nil, 0) }))
	if o.Cgroup != NoCgroup {
		var err error
		w.groups, err = findGroups(&o)
		lack("control groups of their own", err)
	}
	lack("system call filters", filtersAllowed())
	if w.mode == Required && len(w.missing) > 0 {
		return nil, fmt.Errorf("guests' processes can't be confined as confinement.mode requires: %q", w.missing)
	}
	if w.users {
		// Where that is refused, guests' processes have the precedence from birth, and
		// do without once they have lost it.
		_ = unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{Cur: niceLimit, Max: niceLimit})
	}
	return w, nil
}

// Missing says what guests are not confined by, and why. It is empty where all is
// there.
func (w *Warden) Missing() []string {
	if w == nil {
		return nil
	}
	return slices.Clone(w.missing)
}

// Cell is what a new guest gets, nil where mode is [Off]. It is the guest's until
// [Warden.Release].
func (w *Warden) Cell(g ipc.GPU) (_ *ipc.Cell, err error) {
	if w.mode == Off {
		return nil, nil
	}
	c := &ipc.Cell{PrivateDevices: w.mounts}
	if c.Devices, err = devicesOf(os.DirFS("/"), g); err != nil {
		return nil, err
	}
	if w.users {
		if c.Groups, err = groupsOf(c.Devices); err != nil {
			return nil, err
		}
		if g.Socket != "" {
			c.Groups = append(c.Groups, uint32(w.uids.Group()))
		}
		w.mu.Lock()
		c.UID, err = w.pool.take()
		w.mu.Unlock()
		if err != nil {
			return nil, err
		}
		c.GID = c.UID
	}
	if w.groups != nil {
		if c.Cgroup, err = w.groups.create(); err != nil {
			return nil, errors.Join(err, w.Release(c))
		}
	}
	return c, nil
}

// Adopt notes what a guest has that an earlier warden gave it. Limits that have
// changed since are set.
func (w *Warden) Adopt(c *ipc.Cell) error {
	if c == nil {
		return nil
	}
	if c.UID != 0 {
		w.mu.Lock()
		w.pool.claim(c.UID)
		w.mu.Unlock()
	}
	if !w.groups.has(c.Cgroup) {
		return nil
	}
	return w.groups.limit(c.Cgroup)
}

// Release takes a guest's cell back, whose first process has ended; those that are
// left are killed.
func (w *Warden) Release(c *ipc.Cell) error {
	if c == nil {
		return nil
	}
	var err error
	if w.groups.has(c.Cgroup) {
		err = clearGroup(c.Cgroup)
	}
	w.mu.Lock()
	w.pool.give(c.UID)
	w.mu.Unlock()
	return err
}

// Share lets guests' processes connect to a soft GPU at its socket.
func (w *Warden) Share(socket string) error {
	if w == nil || !w.users {
		return nil
	}
	if err := os.Lchown(socket, -1, w.uids.Group()); err != nil {
		return fmt.Errorf("let executors connect to the soft GPU: %w", err)
	}
	if err := os.Chmod(socket, 0o660); err != nil {
		return fmt.Errorf("let executors connect to the soft GPU: %w", err)
	}
	return nil
}

// usersAllowed says why guests can't have users of their own.
func usersAllowed(o *Options) error {
	if os.Geteuid() != 0 {
		return errors.New("the daemon is not root")
	}
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_CHOWN, "CAP_CHOWN"}} {
		if ok, err := capable(c.bit); err != nil || !ok {
			return errors.Join(fmt.Errorf("the daemon has no %s", c.name), err)
		}
	}
	for _, path := range append([]string{o.Program}, o.Sockets...) {
		if err := reachable(path); err != nil {
			return err
		}
	}
	return executable(o.Program)
}

// capable is whether this thread has a capability.
func capable(bit int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("ask for capabilities: %w", err)
	}
	return data[bit/32].Effective&(1<<(bit%32)) != 0, nil
}

// reachable says which directory on the way to a file is closed to other users.
func reachable(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at the way to %s: %w", path, err)
		}
		if st.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("the way to %s is closed to other users at %s (mode %#o): chmod o+x", path, dir, st.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// executable says why other users can't execute a program.
func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at the program: %w", err)
	}
	if st.Mode().Perm()&0o001 == 0 {
		return fmt.Errorf("%s can't be executed by other users (mode %#o)", path, st.Mode().Perm())
	}
	return nil
}

// filtersAllowed says why there are no system call filters.
func filtersAllowed() error {
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err != nil {
		return fmt.Errorf("the kernel has none (CONFIG_SECCOMP_FILTER): %w", err)
	}
	return nil
}

// findGroups is where guests' control groups are made.
func findGroups(o *Options) (*groups, error) {
	dir := o.Cgroup
	if dir == "" {
		self, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return nil, fmt.Errorf("ask for this process's control group: %w", err)
		}
		if dir, err = delegatedGroup(cgroupRoot, string(self)); err != nil {
			return nil, err
		}
	}
	return newGroups(dir, o.Limits)
}
