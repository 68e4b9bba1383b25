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

// Mode says what the manager does where the host can't confine guests in every way.
type Mode string

const (
	// Auto leaves out what can't be done and reports it.
	Auto Mode = "auto"
	// Required makes the daemon refuse to start.
	Required Mode = "required"
	// Off confines nothing, for example to attach a debugger to executors.
	Off Mode = "off"
)

// Options configure a [Manager].
type Options struct {
	Mode Mode
	UIDs UIDs
	// Cgroup is the delegated control group (version 2) for the guests' groups. Empty means the one
	// that systemd delegated to the daemon, [NoCgroup] none.
	Cgroup string
	Limits Limits
	// Program is the program that guests' processes execute, and Sockets are the soft GPUs': files
	// that any user must be able to reach.
	Program string
	Sockets []string
}

// NoCgroup keeps guests in the daemon's control group.
const NoCgroup = "off"

// Manager creates the guests' sandboxes. Its methods may be called from any goroutine. On a nil
// Manager, Share does nothing and Missing returns nothing.
type Manager struct {
	mode    Mode
	uids    UIDs
	users   bool // each guest has a user of its own
	mounts  bool // and a mount namespace
	network bool // and network and IPC namespaces
	groups  *groups
	missing []string

	mu   sync.Mutex
	pool *pool
}

// NewManager probes what this host and this process's rights allow. It returns an error if
// something that o.Mode requires can't be done.
func NewManager(o Options) (*Manager, error) {
	if o.UIDs == (UIDs{}) {
		o.UIDs = DefaultUIDs
	}
	m := &Manager{mode: o.Mode, uids: o.UIDs, pool: newPool(o.UIDs)}
	m.pool.runs = hasProcesses
	if m.mode == Off {
		m.missing = []string{"everything: confinement.mode is off"}
		return m, nil
	}
	lack := func(what string, err error) bool {
		if err != nil {
			m.missing = append(m.missing, what+": "+err.Error())
		}
		return err == nil
	}
	m.users = lack("users of their own", usersAllowed(&o))
	m.mounts = lack("a view of devices of their own", onThread(func() error { return enterMounts(nil, 0) }))
	m.network = lack("a network of their own", onThread(enterNetwork))
	if o.Cgroup != NoCgroup {
		var err error
		m.groups, err = findGroups(&o)
		lack("control groups of their own", err)
	}
	lack("system call filters", filtersAllowed())
	if m.mode == Required && len(m.missing) > 0 {
		return nil, fmt.Errorf("guests' processes can't be confined as confinement.mode requires: %q", m.missing)
	}
	if m.users {
		// If this is refused, guests' processes inherit the priority instead and can't raise it
		// again once they have lowered it.
		_ = unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{Cur: niceLimit, Max: niceLimit})
	}
	return m, nil
}

// Missing returns the forms of confinement that guests don't have, each with the reason.
func (m *Manager) Missing() []string {
	if m == nil {
		return nil
	}
	return slices.Clone(m.missing)
}

// Create returns the sandbox for a new guest of these GPUs, or nil if the mode is [Off]. The guest owns
// it until [Manager.Release].
func (m *Manager) Create(gpus ...ipc.GPU) (_ *ipc.Sandbox, err error) {
	if m.mode == Off {
		return nil, nil
	}
	box := &ipc.Sandbox{PrivateDevices: m.mounts, PrivateNetwork: m.network}
	sockets := false
	for _, g := range gpus {
		nodes, err := devicesOf(os.DirFS("/"), g)
		if err != nil {
			return nil, err
		}
		for _, path := range nodes {
			if !slices.Contains(box.Devices, path) { // GPUs share some
				box.Devices = append(box.Devices, path)
			}
		}
		sockets = sockets || g.Socket != ""
	}
	if m.users {
		if box.Groups, err = groupsOf(box.Devices); err != nil {
			return nil, err
		}
		if sockets {
			box.Groups = append(box.Groups, uint32(m.uids.Group()))
		}
		m.mu.Lock()
		box.UID, err = m.pool.take()
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		box.GID = box.UID
	}
	if m.groups != nil {
		if box.Cgroup, err = m.groups.create(); err != nil {
			return nil, errors.Join(err, m.Release(box))
		}
	}
	return box, nil
}

// Adopt takes over the sandbox that an earlier daemon gave a guest and applies the current limits
// to it.
func (m *Manager) Adopt(box *ipc.Sandbox) error {
	if box == nil {
		return nil
	}
	if box.UID != 0 {
		m.mu.Lock()
		m.pool.claim(box.UID)
		m.mu.Unlock()
	}
	if !m.groups.has(box.Cgroup) {
		return nil
	}
	return m.groups.limit(box.Cgroup)
}

// Release takes back the sandbox of a guest whose first process has ended, and kills the remaining
// ones.
func (m *Manager) Release(box *ipc.Sandbox) error {
	if box == nil {
		return nil
	}
	var err error
	if m.groups.has(box.Cgroup) {
		err = clearGroup(box.Cgroup)
	}
	m.mu.Lock()
	m.pool.release(box.UID)
	m.mu.Unlock()
	return err
}

// Share lets guests' processes connect to a soft GPU's socket.
func (m *Manager) Share(socket string) error {
	if m == nil || !m.users {
		return nil
	}
	if err := os.Lchown(socket, -1, m.uids.Group()); err != nil {
		return fmt.Errorf("let executors connect to the soft GPU: %w", err)
	}
	if err := os.Chmod(socket, 0o660); err != nil {
		return fmt.Errorf("let executors connect to the soft GPU: %w", err)
	}
	return nil
}

// usersAllowed returns the reason why guests can't have users of their own, or nil.
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

// capable reports whether this thread has a capability.
func capable(bit int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read this thread's capabilities: %w", err)
	}
	return data[bit/32].Effective&(1<<(bit%32)) != 0, nil
}

// reachable returns an error that names the directory which keeps other users from reaching path.
func reachable(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("check the directories of %s: %w", path, err)
		}
		if st.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("other users can't reach %s through %s (mode %#o): chmod o+x", path, dir, st.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// executable returns an error if other users can't execute the program at path.
func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("check the program: %w", err)
	}
	if st.Mode().Perm()&0o001 == 0 {
		return fmt.Errorf("%s can't be executed by other users (mode %#o)", path, st.Mode().Perm())
	}
	return nil
}

// filtersAllowed returns the reason why there are no system call filters, or nil.
func filtersAllowed() error {
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err != nil {
		return fmt.Errorf("the kernel has none (CONFIG_SECCOMP_FILTER): %w", err)
	}
	return nil
}

// findGroups returns the guests' control groups.
func findGroups(o *Options) (*groups, error) {
	dir := o.Cgroup
	if dir == "" {
		self, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return nil, fmt.Errorf("read this process's control group: %w", err)
		}
		if dir, err = delegatedGroup(cgroupRoot, string(self)); err != nil {
			return nil, err
		}
	}
	return newGroups(dir, o.Limits)
}
