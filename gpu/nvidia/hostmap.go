package nvidia

import (
	"fmt"
	"os"

	"vgpud/gpu"
)

var _ gpu.HostMapper = (*Context)(nil)

// Addresses at which MapHost maps memory if it is asked to: where neither this process nor the
// driver has anything, usually.
const (
	hostMapFrom = 1 << 40
	hostMapTo   = 1 << 47
)

// MapHost implements [gpu.HostMapper]. A GPU of today has host memory where its process has it. So
// for another address the file is mapped there once more. That mapping stays until the process
// ends, as the driver keeps its pages locked for as long as the context lives.
func (c *Context) MapHost(f *os.File, offset int64, mem []byte, at gpu.Ptr) (gpu.Ptr, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	n := uint64(len(mem))
	if at != 0 {
		if at%hostPage != 0 || at < hostMapFrom || at > hostMapTo || n > hostMapTo-uint64(at) {
			return 0, fmt.Errorf("map %d bytes of the host's at %#x: %w", n, uint64(at), gpu.ErrInvalidPtr)
		}
		there, err := mapAt(f, offset, len(mem), at)
		if err != nil {
			return 0, fmt.Errorf("map %d bytes of the host's at %#x: %w: %w", n, uint64(at), gpu.ErrInvalidPtr, err)
		}
		mem = there
	}
	if !c.host.contains(mem) {
		if _, err := c.RegisterHost(mem); err != nil {
			if at != 0 {
				unmap(mem)
			}
			return 0, err
		}
	}
	p := address(mem)
	c.table.add(allocation{base: uint64(p), size: n, kept: true})
	return gpu.Ptr(p), nil
}
