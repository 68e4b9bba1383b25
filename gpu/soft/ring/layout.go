package ring

import (
	"sync/atomic"

	"vgpud/gpu"
)

const (
	// Entries is the number of launches that a channel holds, and of outcomes that are remembered.
	Entries = gpu.OutcomesKept
	// ParamBytes is the maximum size of a launch's parameters: the 32,764 bytes that PTX allows a
	// kernel, in whole cache lines.
	ParamBytes = 32 << 10
	// Bytes is the size of a channel's file.
	Bytes = headBytes + Entries*(outcomeBytes+entryBytes)

	magic   = 0x52475653 // "SVGR"
	version = 2

	lineBytes    = 64
	headBytes    = 4096
	outcomeBytes = 64
	entryBytes   = lineBytes + ParamBytes
)

// layout is the layout of the file. Fields that different sides write are on different cache lines.
//
// A side that writes a field and then reads one of the other side's, to find out whether to wake it
// or whether to sleep, writes it by Swap. Outside Go's own memory the race detector's Store is a
// plain store, which a later load can overtake.
type layout struct {
	magic, version uint32
	_              [lineBytes - 8]byte

	// Written by the producer.
	put     atomic.Uint64
	_       [lineBytes - 8]byte
	waiting atomic.Uint32 // goroutines that sleep on completed
	_       [lineBytes - 4]byte

	// Written by the consumer.
	completed atomic.Uint64
	_         [lineBytes - 8]byte
	wantKick  atomic.Uint32
	_         [lineBytes - 4]byte
	dead      atomic.Uint32
	_         [headBytes - 5*lineBytes - 4]byte

	outcomes [Entries]outcomeLayout
	entries  [Entries]entryLayout
}

type outcomeLayout struct {
	seq        atomic.Uint64
	start, end atomic.Int64
	code       atomic.Uint32
	_          [outcomeBytes - 28]byte
}

type entryLayout struct {
	kernel     uint32
	grid       [3]uint32
	block      [3]uint32
	paramBytes uint32
	shared     uint64
	_          [lineBytes - 40]byte
	params     [ParamBytes]byte
}

// Entry is a launch in the ring.
type Entry struct {
	Kernel      uint32 // the context's number for the kernel
	Grid, Block gpu.Dim3
	Shared      uint64 // dynamic, in bytes
	Params      []byte
}

// Code is how a launch ended.
type Code uint32

// The codes, with the corresponding error of package gpu.
const (
	OK          Code = iota
	Fault            // the kernel faulted; the context has the fault
	Poisoned         // ErrPoisoned: dropped, since the fault of another launch ended the context
	BadLaunch        // ErrInvalidLaunch
	NoMemory         // ErrOutOfMemory
	Unsupported      // ErrUnsupported
	Dropped          // the channel or context was closed
)

// Outcome is the end of a launch.
type Outcome struct {
	Start, End int64 // nanoseconds on the GPU's clock
	Code       Code
}
