package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// plain are the devices that every program may expect.
var plain = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// scratch is the one directory that a guest's processes can write to: it is in
// memory, which is the guest's, and gone with its last process. A GPU's library
// keeps there what it has compiled.
const (
	scratch     = "/dev/shm"
	scratchSize = "256m"
)

// enterMounts gives the calling thread, which must be nobody else's, a mount
// namespace in which files are as they are but can only be read, no device can be
// opened, and /dev has nothing but the plain ones and those named, and a scratch
// directory of that user's. It needs CAP_SYS_ADMIN.
func enterMounts(devices []string, user int) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// What the host unmounts goes here, too: guests keep no file system in use.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep the mounts to the guest: %w", err)
	}
	// The nodes are taken hold of before they are covered, and before what is
	// mounted can have no devices.
	nodes := make(map[string]int)
	defer func() {
		for _, fd := range nodes {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, path := range append(append([]string(nil), plain...), devices...) {
		if nodes[path], err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			delete(nodes, path)
			return fmt.Errorf("take hold of %s: %w", path, err)
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
	// In /proc a process can write to what is its own, as libcuda does to name its
	// threads: it does not start where it can't.
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
			return fmt.Errorf("make a place for %s: %w", path, err)
		}
		// Opened, it could be in the hands of a process that another thread forks, and
		// what is open for writing can't be made read-only.
		if err := unix.Mknod(path, unix.S_IFREG|0o644, 0); err != nil {
			return fmt.Errorf("make a place for %s: %w", path, err)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("put %s into the guest's /dev: %w", path, err)
		}
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("make a place for scratch files: %w", err)
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

// isReadOnly is whether nothing can be written in what is mounted at path.
func isReadOnly(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("look at what is mounted at %s: %w", path, err)
	}
	return st.Flags&unix.ST_RDONLY != 0, nil
}
