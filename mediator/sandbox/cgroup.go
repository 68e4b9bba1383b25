package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is the mount point of the unified hierarchy.
const cgroupRoot = "/sys/fs/cgroup"

// delegated is the attribute by which systemd (since 251) marks a control group that a service
// manages itself.
const delegated = "user.delegate"

// guestsGroup is the parent of all guests' groups, inside the daemon's.
const guestsGroup = "guests"

// Limits bound the processes of one guest together.
type Limits struct {
	// MemoryBytes is memory.max, host memory; 0 is no limit.
	MemoryBytes uint64
	// Processes is pids.max, processes and threads; 0 is no limit.
	Processes int
	// CPUWeight is cpu.weight, 1 to 10000; 0 keeps the default of 100.
	CPUWeight int
}

// files returns the contents of the interface files by name.
func (l Limits) files() map[string]string {
	maximum := func(n uint64) string {
		if n == 0 {
			return "max"
		}
		return strconv.FormatUint(n, 10)
	}
	files := map[string]string{"memory.max": maximum(l.MemoryBytes), "pids.max": maximum(uint64(max(l.Processes, 0)))}
	if l.CPUWeight > 0 {
		files["cpu.weight"] = strconv.Itoa(l.CPUWeight)
	}
	return files
}

// groups creates and removes the guests' control groups.
type groups struct {
	dir    string
	limits Limits
}

// controllers lists the controllers that the limits need.
var controllers = []string{"cpu", "memory", "pids"}

// delegatedGroup returns the control group in which this process may create others. The process
// itself must be in a child of it, because a group whose children have limits can hold no
// processes.
func delegatedGroup(root, self string) (string, error) {
	var path string
	for line := range strings.Lines(self) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = p
		}
	}
	if path == "" {
		return "", errors.New("this process is in no control group of version 2")
	}
	dir := filepath.Join(root, path)
	for at := dir; len(at) > len(root); at = filepath.Dir(at) {
		mark := make([]byte, 8)
		n, err := unix.Getxattr(at, delegated, mark)
		if err != nil || strings.TrimRight(string(mark[:n]), "\x00") != "1" {
			continue
		}
		if at == dir {
			return "", fmt.Errorf("the daemon's control group %s has no other below for the daemon itself: the unit needs DelegateSubgroup= (systemd 254)", path)
		}
		return at, nil
	}
	return "", fmt.Errorf("control group %s is not delegated: the unit needs Delegate=yes", path)
}

// newGroups creates the guests' parent group in dir, which is delegated, and enables the
// controllers in both.
func newGroups(dir string, l Limits) (*groups, error) {
	g := &groups{dir: filepath.Join(dir, guestsGroup), limits: l}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the control group for guests: %w", err)
	}
	for _, d := range []string{dir, g.dir} {
		have, err := os.ReadFile(filepath.Join(d, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read a control group's controllers: %w", err)
		}
		for _, c := range controllers {
			if !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " "+c+" ") {
				return nil, fmt.Errorf("control group %s has no controller %q (it has: %s)", d, c, strings.TrimSpace(string(have)))
			}
			if err := write(d, "cgroup.subtree_control", "+"+c); err != nil {
				return nil, err
			}
		}
	}
	return g, g.sweep()
}

// groupNames is the pattern of guests' groups; it matches none of the kernel's own files.
const groupNames = "vm-*"

// has reports whether dir is a group that create made.
func (g *groups) has(dir string) bool { return g != nil && dir != "" && filepath.Dir(dir) == g.dir }

// sweep removes empty groups: those of guests that ended while no daemon ran.
func (g *groups) sweep() error {
	dirs, err := filepath.Glob(filepath.Join(g.dir, groupNames))
	if err != nil {
		return fmt.Errorf("list control groups of guests: %w", err)
	}
	for _, dir := range dirs {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the empty control group %s: %w", dir, err)
		}
	}
	return nil
}

// create creates a group for a guest and sets its limits.
func (g *groups) create() (dir string, err error) {
	if dir, err = os.MkdirTemp(g.dir, groupNames); err != nil {
		return "", fmt.Errorf("create a control group for a guest: %w", err)
	}
	return dir, g.limit(dir)
}

func (g *groups) limit(dir string) error {
	for name, value := range g.limits.files() {
		if err := write(dir, name, value); err != nil {
			return err
		}
	}
	return nil
}

// clearLimit bounds the wait for a guest's killed processes to disappear.
const clearLimit = 500 * time.Millisecond

// clearGroup kills the processes in a guest's group and removes it.
func clearGroup(dir string) error {
	// Before Linux 5.14 there is no cgroup.kill; processes end by themselves there, because their
	// connection has ended.
	if err := write(dir, "cgroup.kill", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for deadline := time.Now().Add(clearLimit); ; time.Sleep(time.Millisecond) {
		switch err := unix.Rmdir(dir); {
		case err == nil || errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(deadline):
			return fmt.Errorf("remove a guest's control group %s: %w", dir, err)
		}
	}
}

// write sets an interface file of a control group.
func write(dir, name, value string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s of a control group to %q: %w", name, value, err)
	}
	return nil
}
