package driver

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a mapped BAR.
type mapping struct{ b []byte }

// revoke maps zeroed memory of this process over the device's. Accesses under way go on and read
// meaningless values; none faults, and none reaches a device that may appear at the same address.
func (m *mapping) revoke() error {
	if m.b == nil {
		return nil
	}
	if err := replace(m.b); err != nil {
		return fmt.Errorf("release a BAR: %w", err)
	}
	return nil
}

func (m *mapping) unmap() error {
	if m.b == nil {
		return nil
	}
	b := m.b
	m.b = nil
	return unix.Munmap(b)
}

// mapFile maps a resource of the given size. It returns the open file as well, for locking: two
// drivers of one device would not notice each other.
func mapFile(path string, bytes uint64) (m mapping, f *os.File, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return m, nil, fmt.Errorf("map a BAR: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return m, nil, fmt.Errorf("map a BAR: %w", err)
	}
	if uint64(st.Size()) != bytes || bytes == 0 {
		return m, nil, fmt.Errorf("map a BAR: %s has %d bytes, want %d", path, st.Size(), bytes)
	}
	if m.b, err = unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return m, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return m, f, nil
}
