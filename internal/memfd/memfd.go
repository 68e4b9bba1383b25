// Package memfd says which files in memory can be mapped without a risk.
//
// Whoever touches a page of a mapping that lies beyond the end of its file is ended by
// SIGBUS. So a process that maps what another process has made must know that nobody can
// make it shorter. [Check] is for every descriptor that came from elsewhere and is to be
// mapped; it does not map, and it is not for descriptors of devices.
package memfd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Seals are those that [Check] asks for: the size stays, and so do the seals.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Check says why f must not be mapped: it is no file in memory of size bytes, or its size
// could change. The kernel takes no seal back, so what Check allows stays so.
func Check(f *os.File, size int64) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("not a file in memory: ask for its seals: %w", err)
	}
	if missing := Seals &^ seals; missing != 0 {
		return fmt.Errorf("file in memory has seals %#x and lacks %#x, without which it can be cut short", seals, missing)
	}
	// After the seals, so that it is the size that stays.
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at a file in memory: %w", err)
	}
	if st.Size() != size {
		return fmt.Errorf("file in memory has %d bytes, want %d", st.Size(), size)
	}
	return nil
}
