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

// Kernel opens the driver's nodes: [Linux], or the software driver of package rmtest.
type Kernel interface {
	// Open opens a device node by its name under /dev.
	Open(name string) (Node, error)
	// Own duplicates this process's descriptors of the control node, lowest first. The caller
	// closes them.
	Own() ([]Node, error)
	// Admin reports whether this process has CAP_SYS_ADMIN.
	Admin() bool
	// Adopt takes ownership of f, even if it returns an error because f is not an open control
	// node.
	Adopt(f *os.File) (Node, error)
}

// Node is an open device node. Ioctl may be called from several goroutines.
type Node interface {
	// Ioctl makes the call numbered nr with arg, which the driver also writes to. If params is not
	// nil, its address is put into arg at abi.PointerOffset for the duration of the call.
	Ioctl(nr uint8, arg, params []byte) error
	// IoctlBriefly is Ioctl for frequent calls of some microseconds. It bypasses Go's scheduler,
	// which otherwise wakes a thread to check after each: on an H100's host that was a tenth of the
	// daemon's processor time. If such a call turns out not to be brief, the next ones are made
	// like any other.
	IoctlBriefly(nr uint8, arg, params []byte) error
	// Map maps length bytes of the object that an earlier call bound to this node, for reading and,
	// if write is set, for writing. The mapping stays when the node is closed.
	Map(length int, write bool) (Mapping, error)
	// FD returns the descriptor's number.
	FD() int
	io.Closer
}

// Mapping is memory shared with the driver or the GPU.
type Mapping interface {
	// Load32 reads a word at an offset that is a multiple of 4, in one access. Later reads see
	// memory at least as new as the word.
	Load32(off int) uint32
	// Copy reads len(b) bytes from off.
	Copy(b []byte, off int)
	// Store32 writes a word at an offset that is a multiple of 4, in a writable mapping. Later
	// writes become visible after it.
	Store32(off int, v uint32)
	io.Closer
}
