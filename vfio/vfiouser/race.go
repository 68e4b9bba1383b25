//go:build race

package vfiouser

import "syscall"

// The race detector knows that what one end of a socket does before it writes comes before what the other does after it reads,
// when both ends are in one process, as in tests. It learns so from package syscall's Read and Write, but not from recvmsg and
// sendmsg; hence an empty read or write beside those.

func raceAcquire(fd uintptr) { _, _ = syscall.Read(int(fd), nil) }

func raceRelease(fd uintptr) { _, _ = syscall.Write(int(fd), nil) }
