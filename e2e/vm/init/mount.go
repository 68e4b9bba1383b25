package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mounts are the file systems that programs need.
var mounts = []struct {
	kind, at, options string
	flags             uintptr
}{
	{"devtmpfs", "/dev", "", unix.MS_NOSUID},
	{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"tmpfs", "/run", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
}

func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		// The kernel may have mounted /dev by itself.
		err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.options)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}
