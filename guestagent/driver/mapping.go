package driver

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a mapped BAR.
type mapping struct {
	b      []byte
	placed bool // place has moved it
}

// Places for shared memory in a process. They are outside of what Linux and sanitizers use for
// themselves, and within what GPUs can use as addresses: so a window can have the same address in
// this process and on the GPU, as CUDA's page-locked memory. Each device has one.
const (
	sharedPlaces     = 0x5000_0000_0000
	sharedPlaceBytes = 1 << 36
	maxSharedPlaces  = 64
)

// place moves the mapping to one of the places for shared memory. If that is not possible it stays
// where it is.
func (m *mapping) place() {
	for i := uintptr(0); i < maxSharedPlaces && len(m.b) <= sharedPlaceBytes && !m.placed; i++ {
		m.b, m.placed = move(m.b, sharedPlaces+i*sharedPlaceBytes)
	}
}

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
	if m.placed {
		return unmap(b)
	}
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
