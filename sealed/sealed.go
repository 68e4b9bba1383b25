// Package sealed makes memory for several processes to map, and checks what comes from
// another process before it is mapped. Who truncates a file that somebody else has mapped
// kills them: what they touch beyond its end is SIGBUS. Seals keep everybody from that for
// good (memfd_create(2), fcntl(2): F_ADD_SEALS).
package sealed

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// size has the file's size stay what it is, for good.
const size = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// New makes memory of so many bytes, all zero, whose size stays. The name is for people, in
// /proc. The caller closes it.
func New(name string, bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("size %s: %w", name, err), f.Close())
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, size); err != nil {
		return nil, errors.Join(fmt.Errorf("seal %s: %w", name, err), f.Close())
	}
	return f, nil
}

// Check returns an error unless f has so many bytes and can't have fewer or more, whoever
// else has it.
func Check(f *os.File, bytes int64) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("ask for the seals of %s, which other memory than memfd_create's has none of: %w", f.Name(), err)
	}
	if missing := size &^ seals; missing != 0 {
		return fmt.Errorf("%s has seals %#x: without %#x its size may change while it is mapped", f.Name(), seals, missing)
	}
	st, err := f.Stat() // once it is known that it stays so
	if err != nil {
		return fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	if st.Size() != bytes {
		return fmt.Errorf("%s has %d bytes, want %d", f.Name(), st.Size(), bytes)
	}
	return nil
}
