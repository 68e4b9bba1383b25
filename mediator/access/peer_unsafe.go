package access

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is Linux's limit of a process's supplementary groups (NGROUPS_MAX).
const maxGroups = 65536

// peerGroups returns the supplementary groups of the process at the other end of a unix socket
// (SO_PEERGROUPS, since Linux 4.13).
func peerGroups(fd int) ([]uint32, error) {
	for n := 64; ; n = maxGroups {
		groups := make([]uint32, n)
		size := uint32(n) * uint32(unsafe.Sizeof(groups[0]))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && n < maxGroups:
			continue
		case errno != 0:
			return nil, errno
		}
		return groups[:size/uint32(unsafe.Sizeof(groups[0]))], nil
	}
}
