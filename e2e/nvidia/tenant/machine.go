package tenant

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// machine is a context on a GPU, however it is reached.
type machine interface {
	load(ctx context.Context, ptx string) (module, error)
	alloc(ctx context.Context, bytes uint64) (uint64, error)
	copyIn(ctx context.Context, dst uint64, src []byte) error
	copyOut(ctx context.Context, dst []byte, src uint64) error
	// lines makes so many places for launches that are under way. Where they are not
	// used again before all launches are waited for, nothing need be on the GPU
	// between two launches to tell of the first one's end.
	lines(n int, again bool)
	// launch puts a command into a place that is free; wait waits for it, and says
	// when the GPU began and ended it.
	launch(ctx context.Context, line int, c *command) error
	wait(ctx context.Context, line int) (done, error)
	reset(ctx context.Context) error
	close() error
}

// done is the end of a launch.
type done struct {
	start, end time.Duration // on the GPU's clock
	evictions  uint64
}

// module is loaded code.
type module interface {
	function(ctx context.Context, name string) (function, error)
	global(ctx context.Context, name string) (uint64, error)
}

// function is a kernel. Its parameters are of 1, 2, 4 or 8 bytes, or []byte of any.
type function interface {
	params(args ...[]byte) ([]byte, error)
	// form is what the tuner says of the kernel's forms; nil where it has none.
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

// place puts arguments where the parameters lie.
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
