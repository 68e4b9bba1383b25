package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// plain are the devices that every program may expect.
var plain = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// enterMounts gives the calling thread, which must be nobody else's, a mount
// namespace in which files are as they are but can only be read, no device can be
// opened, and /dev has nothing but the plain ones and those named. It needs
// CAP_SYS_ADMIN.
func enterMounts(devices []string) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
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
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make all mounts read-only (needs Linux 5.12): %w", err)
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount an empty /dev: %w", err)
	}
	for path, fd := range nodes {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a place for %s: %w", path, err)
		}
		f, err := os.Create(path)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("make a place for %s: %w", path, err)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("put %s into the guest's /dev: %w", path, err)
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/dev", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the guest's /dev read-only: %w", err)
	}
	return nil
}
