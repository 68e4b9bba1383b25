package rm

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// The control node's number (NV_MAJOR_DEVICE_NUMBER, NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE of the
// driver's nv-linux.h): inside a jail the node may have any name.
const (
	nvidiaMajor  = 195
	controlMinor = 255
)

// Linux is the kernel that this process runs on.
type Linux struct{}

// Open implements [Kernel].
func (Linux) Open(name string) (Node, error) {
	path := filepath.Join("/dev", name)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s (is NVIDIA's driver loaded, and is the node there for this user?): %w", path, err)
	}
	return newNode(os.NewFile(uintptr(fd), path)), nil
}

// Own implements [Kernel].
func (Linux) Own() ([]Node, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("look for this process's descriptors of the driver: %w", err)
	}
	var fds []int
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && isControl(fd) == nil {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	var nodes []Node
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue // closed meanwhile
		}
		nodes = append(nodes, newNode(os.NewFile(uintptr(dup), ControlNode)))
	}
	return nodes, nil
}

// Adopt implements [Kernel].
func (Linux) Adopt(f *os.File) (Node, error) {
	if err := isControl(int(f.Fd())); err != nil {
		return nil, closing(f, err)
	}
	return newNode(f), nil
}

// Admin implements [Kernel].
func (Linux) Admin() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	err := unix.Capget(&h, &d[0])
	return err == nil && d[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// isControl returns an error unless fd is an open control node.
func isControl(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at a descriptor of the driver: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != nvidiaMajor || unix.Minor(st.Rdev) != controlMinor {
		return fmt.Errorf("descriptor %d is not NVIDIA's control node", fd)
	}
	return nil
}

type node struct {
	f     *os.File
	brief *briefCalls
}

func newNode(f *os.File) node { return node{f, new(briefCalls)} }

func (n node) Ioctl(nr uint8, arg, params []byte) error {
	return passing(arg, params, func() unix.Errno {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, n.f.Fd(), uintptr(abi.Request(nr, len(arg))), uintptr(unsafe.Pointer(&arg[0])))
		return errno
	})
}

func (n node) IoctlBriefly(nr uint8, arg, params []byte) error {
	if !n.brief.trusted() {
		return n.Ioctl(nr, arg, params)
	}
	begin := time.Now()
	defer func() { n.brief.took(time.Since(begin)) }()
	return passing(arg, params, func() unix.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, n.f.Fd(), uintptr(abi.Request(nr, len(arg))), uintptr(unsafe.Pointer(&arg[0])))
		return errno
	})
}

// passing makes a call with the address of params in arg.
func passing(arg, params []byte, call func() unix.Errno) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	if len(params) > 0 {
		// The address is a plain number in arg, so only the pin keeps the memory in place.
		pin.Pin(&params[0])
		address := uint64(uintptr(unsafe.Pointer(&params[0])))
		binary.LittleEndian.PutUint64(arg[abi.PointerOffset:], address)
		defer binary.LittleEndian.PutUint64(arg[abi.PointerOffset:], 0)
	}
	for {
		switch errno := call(); errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

func (n node) Map(length int, write bool) (Mapping, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(int(n.f.Fd()), 0, length, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the driver's: %w", length, err)
	}
	return mapping(mem), nil
}

func (n node) FD() int      { return int(n.f.Fd()) }
func (n node) Close() error { return n.f.Close() }

type mapping []byte

// Load32 implements [Mapping]. The processor may read ahead in write-combining memory, as a GPU's
// memory is mapped, but not past a locked instruction (Intel's manual, volume 3, 8.2.2 and 11.3.1).
func (m mapping) Load32(off int) uint32 {
	written.Swap(0)
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&m[off : off+4][0])))
}

func (m mapping) Copy(b []byte, off int) { copy(b, m[off:off+len(b)]) }

// written is the target of the locked instructions of Load32 and Store32.
var written atomic.Uint32

// Store32 implements [Mapping]. A GPU's memory is mapped write-combining: the processor buffers a
// store until it is flushed, for example by a locked instruction on other memory (Intel's manual,
// volume 3, 11.3.1). A locked instruction on this memory would first read it across the bus.
func (m mapping) Store32(off int, v uint32) {
	*(*uint32)(unsafe.Pointer(&m[off : off+4][0])) = v
	written.Swap(v)
}

func (m mapping) Close() error { return unix.Munmap(m) }

// closing closes f before a return with err, which takes precedence.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and close it: %v)", err, cerr)
	}
	return err
}
