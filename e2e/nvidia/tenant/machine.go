package tenant

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// machine is a context on a GPU, however the GPU is reached.
type machine interface {
	load(ctx context.Context, ptx string) (module, error)
	alloc(ctx context.Context, bytes uint64) (uint64, error)
	copyIn(ctx context.Context, dst uint64, src []byte) error
	copyOut(ctx context.Context, dst []byte, src uint64) error
	// lines allocates n places for launches under way. If again is not set, no place is used again
	// before all launches are waited for. Then the GPU need not signal the end of each launch.
	lines(n int, again bool)
	// launch queues a command in a free place. wait waits for it, and returns when the GPU began
	// and ended it.
	launch(ctx context.Context, line int, c *command) error
	wait(ctx context.Context, line int) (done, error)
	reset(ctx context.Context) error
	close() error
}

// done describes the end of a launch.
type done struct {
	start, end time.Duration // by the GPU's clock
	evictions  uint64
}

// module is loaded code.
type module interface {
	function(ctx context.Context, name string) (function, error)
	global(ctx context.Context, name string) (uint64, error)
}

// function is a kernel. Its parameters have 1, 2, 4 or 8 bytes, or are a []byte of any length.
type function interface {
	params(args ...[]byte) ([]byte, error)
	// form returns the tuner's information about the kernel's forms, or nil if there is none.
	form() *Form
}

// command is a launch.
type command struct {
	function    function
	grid, block [3]uint32
	shared      uint32
	params      []byte
	as          *Form
}

// place copies arguments to the offsets of the parameters.
func place(name string, offsets, sizes []int, args [][]byte) ([]byte, error) {
	if len(offsets) != len(args) {
		return nil, fmt.Errorf("kernel %s has %d parameters, not %d", name, len(offsets), len(args))
	}
	var b []byte
	for i, a := range args {
		if sizes[i] != len(a) {
			return nil, fmt.Errorf("kernel %s: parameter %d is of %d bytes, not %d", name, i, sizes[i], len(a))
		}
		b = append(b, make([]byte, offsets[i]-len(b))...)
		b = append(b, a...)
	}
	return b, nil
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
