package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enterNetwork moves the calling thread into a network namespace that has no network, not even
// loopback, and an IPC namespace without System V shared memory and message queues of others. Sockets
// that a process receives, and those that it reaches by a path, work as before. The thread must not
// be used for anything else afterwards. It needs CAP_SYS_ADMIN.
func enterNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("make a network and an IPC namespace: %w", err)
	}
	return nil
}
