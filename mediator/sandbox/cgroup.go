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

// cgroupRoot is where the unified hierarchy is mounted.
const cgroupRoot = "/sys/fs/cgroup"

// delegated is the attribute by which systemd marks a control group whose inside
// is its service's affair (since systemd 251).
const delegated = "user.delegate"

// guestsGroup is the group, in the daemon's, of all guests' groups. Dashes keep it
// apart from units.
const guestsGroup = "guests"

// Limits are what the processes of one guest may use together.
type Limits struct {
	// MemoryBytes is memory.max, host memory; 0 is no limit.
	MemoryBytes uint64
	// Processes is pids.max, processes and threads; 0 is no limit.
	Processes int
	// CPUWeight is cpu.weight, 1 to 10000, where a group has 100 by default; 0
	// leaves it.
	CPUWeight int
}

// files are the interface files' contents by name, with the controller that each
// needs.
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

// groups are the guests' control groups.
type groups struct {
	dir    string
	limits Limits
}

// controllers are what limits are of.
var controllers = []string{"cpu", "memory", "pids"}

// delegatedGroup finds the control group in which this process may make others.
// The process itself has to be in one below, since a group that has limited ones
// in it can hold no processes.
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

// newGroups makes the group for guests in dir, which is delegated, and has it pass
// on what limits need.
func newGroups(dir string, l Limits) (*groups, error) {
	g := &groups{dir: filepath.Join(dir, guestsGroup), limits: l}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the control group for guests: %w", err)
	}
	for _, d := range []string{dir, g.dir} {
		have, err := os.ReadFile(filepath.Join(d, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("ask for a control group's controllers: %w", err)
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

// groupNames are of guests' groups; none is one of the kernel's own files.
const groupNames = "vm-*"

// has is whether a control group is one that create has made.
func (g *groups) has(dir string) bool { return g != nil && dir != "" && filepath.Dir(dir) == g.dir }

// sweep removes groups that nobody is in: guests that ended while there was no
// daemon have left them.
func (g *groups) sweep() error {
	left, err := filepath.Glob(filepath.Join(g.dir, groupNames))
	if err != nil {
		return fmt.Errorf("look for control groups of guests: %w", err)
	}
	for _, dir := range left {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the control group %s, which nobody is in: %w", dir, err)
		}
	}
	return nil
}

// create makes a group for a guest, with its limits.
func (g *groups) create() (dir string, err error) {
	if dir, err = os.MkdirTemp(g.dir, groupNames); err != nil {
		return "", fmt.Errorf("make a control group for a guest: %w", err)
	}
	return dir, g.limit(dir)
}

// limit sets a group's limits.
func (g *groups) limit(dir string) error {
	for name, value := range g.limits.files() {
		if err := write(dir, name, value); err != nil {
			return err
		}
	}
	return nil
}

// clearLimit is how long a guest's last processes may take to be gone when killed.
const clearLimit = 500 * time.Millisecond

// clearGroup ends what is left in a guest's group and removes it.
func clearGroup(dir string) error {
	// Linux 5.14; before that they end by themselves, since their link has.
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

// write sets an interface file.
func write(dir, name, value string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s of a control group to %q: %w", name, value, err)
	}
	return nil
}
