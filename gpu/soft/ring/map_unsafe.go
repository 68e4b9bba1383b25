package ring

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/internal/memfd"
)

// NewFile makes a channel's file, sealed so that neither side can take it away from under the other. The caller closes
// it; maps of it stay.
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

// closing closes f on the way out with err, which is what matters.
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

// futexWord is the low half of completed, which changes with every completion.
func futexWord(l *layout) *uint32 {
	if bigEndian {
		return (*uint32)(unsafe.Add(unsafe.Pointer(&l.completed), 4))
	}
	return (*uint32)(unsafe.Pointer(&l.completed))
}

var bigEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 0
}()

// futexWait sleeps until somebody wakes the word, it is not value any more, or the time is over. The word is shared
// between processes, so the futex is not a private one.
func futexWait(word *uint32, value uint32, timeout unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
}

// futexWake wakes the sleeper. It doesn't wait, so Go's runtime is not told: it would wake its monitor first, which comes
// before whoever is to be woken.
func futexWake(word *uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1<<30, 0, 0, 0)
}

const (
	futexOpWait = 0
	futexOpWake = 1
)

var _ [Bytes]byte = [unsafe.Sizeof(layout{})]byte{}
