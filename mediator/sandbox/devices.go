package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// plain lists the devices that every program may expect.
var plain = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// scratch is the only directory that a guest's processes can write to. It is in memory, which is
// charged to the guest, and disappears with the guest's last process. A GPU's library caches
// compiled code there.
const (
	scratch     = "/dev/shm"
	scratchSize = "256m"
)

// enterMounts moves the calling thread into a new mount namespace in which all files are read-only,
// no device can be opened, and /dev holds only the plain devices, the given ones and a scratch
// directory owned by user. The thread must not be used for anything else afterwards. It needs
// CAP_SYS_ADMIN.
func enterMounts(devices []string, user int) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Slave mounts follow the host's unmounts: guests keep no file system in use.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make the mounts slaves of the host's: %w", err)
	}
	// Open the nodes before the mounts become nodev and /dev is covered.
	nodes := make(map[string]int)
	defer func() {
		for _, fd := range nodes {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, path := range append(append([]string(nil), plain...), devices...) {
		if nodes[path], err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			delete(nodes, path)
			return fmt.Errorf("open %s: %w", path, err)
		}
	}
	readOnly, err := isReadOnly("/proc")
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make all mounts read-only (needs Linux 5.12): %w", err)
	}
	// A process writes to its own part of /proc: libcuda names its threads there, and fails to
	// start where it can't.
	if !readOnly {
		if err := unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("let a process write to its own part of /proc: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount an empty /dev: %w", err)
	}
	for path, fd := range nodes {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create a mount point for %s: %w", path, err)
		}
		// mknod, not open: a process that another thread forks could inherit a descriptor open for
		// writing, and the mount could not be made read-only then.
		if err := unix.Mknod(path, unix.S_IFREG|0o644, 0); err != nil {
			return fmt.Errorf("create a mount point for %s: %w", path, err)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s in the guest's /dev: %w", path, err)
		}
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("create a mount point for scratch files: %w", err)
	}
	options := fmt.Sprintf("mode=0700,uid=%d,gid=%d,size=%s", user, user, scratchSize)
	if err := unix.Mount("tmpfs", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount a scratch directory: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/dev", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the guest's /dev read-only: %w", err)
	}
	return nil
}

// isReadOnly reports whether the file system at path is mounted read-only.
func isReadOnly(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("statfs %s: %w", path, err)
	}
	return st.Flags&unix.ST_RDONLY != 0, nil
}
