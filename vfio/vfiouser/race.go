//go:build race

package vfiouser

import "syscall"

// The race detector knows that what one end of a socket does before a write happens before what the
// other end does after the read, if both ends are in one process, as in tests. It learns this from
// the Read and Write of package syscall, but not from recvmsg and sendmsg; therefore an empty read
// or write accompanies those.

func raceAcquire(fd uintptr) { _, _ = syscall.Read(int(fd), nil) }

func raceRelease(fd uintptr) { _, _ = syscall.Write(int(fd), nil) }
