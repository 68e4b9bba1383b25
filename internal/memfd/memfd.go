// Package memfd checks whether a memory file of another process can be mapped safely.
//
// A process that touches a page of a mapping beyond the end of its file is ended by SIGBUS. So a
// process that maps another process's file must know that the file can't shrink. [Check] is for
// every received descriptor that is to be mapped. It does not map, and is not for descriptors of
// devices.
package memfd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Seals are the seals that [Check] requires: the size can't change, and neither can the seals.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Check returns an error if f must not be mapped: it is no memory file of size bytes, or its size
// could change. Seals can't be removed, so the result holds for good.
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
