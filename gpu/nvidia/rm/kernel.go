package rm

import (
	"io"
	"os"
)

// Names of device nodes, under /dev.
const (
	ControlNode = "nvidiactl"
	gpuNode     = "nvidia%d"
)

// Kernel is where the driver is reached: [Linux], or a fake of package rmtest.
type Kernel interface {
	// Open opens a device node by its name under /dev.
	Open(name string) (Node, error)
	// Own duplicates the descriptors of the control node that this process has, lowest
	// first. The caller closes them.
	Own() ([]Node, error)
	// Admin says whether this process has CAP_SYS_ADMIN.
	Admin() bool
	// Adopt takes f over, also where it is not an open control node, which is an error.
	Adopt(f *os.File) (Node, error)
}

// Node is an open device node. Ioctl may be called from several goroutines.
type Node interface {
	// Ioctl makes the call numbered nr with arg, which the driver also writes to. Where
	// params is not nil, its address is put into arg at abi.PointerOffset for the
	// time of the call.
	Ioctl(nr uint8, arg, params []byte) error
	// IoctlBriefly is Ioctl for calls of some microseconds that are made often. Go's
	// scheduler does not hear of it, which else wakes a thread to look after each: on an
	// H100's host that was a tenth of what the daemon takes. Where such a call turns out
	// not to be brief, the next ones are like any other.
	IoctlBriefly(nr uint8, arg, params []byte) error
	// Map maps length bytes, of what a call made this node stand for, for reading, and
	// for writing where write says so. The mapping stays when the node is closed.
	Map(length int, write bool) (Mapping, error)
	// FD is the descriptor's number.
	FD() int
	io.Closer
}

// Mapping is memory that the driver or the GPU has too.
type Mapping interface {
	// Load32 reads a word at an offset that is a multiple of 4, in one access, and what
	// is read after it was written at least as late.
	Load32(off int) uint32
	// Copy reads len(b) bytes from off.
	Copy(b []byte, off int)
	// Store32 writes a word at an offset that is a multiple of 4, of a mapping that is
	// for writing. What is written after it is seen by nobody before it is.
	Store32(off int, v uint32)
	io.Closer
}
