package ring

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/internal/memfd"
)

// NewFile creates a channel's file, sealed so that neither side can truncate it. The caller closes
// it; mappings remain.
func NewFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("vgpud-soft-channel", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a channel's ring: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-soft-channel")
	if err := f.Truncate(Bytes); err != nil {
		return nil, fmt.Errorf("size a channel's ring: %w", closing(f, err))
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return nil, fmt.Errorf("seal a channel's ring: %w", closing(f, err))
	}
	mem, l, err := mapFile(f)
	if err != nil {
		return nil, closing(f, err)
	}
	l.magic, l.version = magic, version
	if err := unix.Munmap(mem); err != nil {
		return nil, fmt.Errorf("unmap a channel's ring: %w", closing(f, err))
	}
	return f, nil
}

// closing closes f and returns err.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and close it: %v)", err, cerr)
	}
	return err
}

func mapFile(f *os.File) ([]byte, *layout, error) {
	if err := memfd.Check(f, Bytes); err != nil {
		return nil, nil, fmt.Errorf("channel's ring: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map a channel's ring: %w", err)
	}
	return mem, (*layout)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// futexWord returns the low half of completed, which changes with every completion.
func futexWord(l *layout) *atomic.Uint32 {
	if bigEndian {
		return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(&l.completed), 4))
	}
	return (*atomic.Uint32)(unsafe.Pointer(&l.completed))
}

var bigEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 0
}()

var _ [Bytes]byte = [unsafe.Sizeof(layout{})]byte{}
