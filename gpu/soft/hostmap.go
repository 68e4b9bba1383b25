package soft

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
	"vgpud/internal/memfd"
)

const (
	// hostBase is where memory of the host is mapped, unless its user asks for another place: above
	// the memory of all contexts.
	hostBase = 0x6000_0000_0000
	// maxHostMaps is how many parts of the host's memory a context may have mapped.
	maxHostMaps = 4
)

var _ gpu.HostMapper = (*deviceContext)(nil)

// MapHost implements [gpu.HostMapper].
func (c *deviceContext) MapHost(f *os.File, offset int64, mem []byte, at gpu.Ptr) (gpu.Ptr, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	p, err := c.cd.MapHost(f, uint64(offset), uint64(len(mem)), at)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges.insert(memRange{p, uint64(len(mem)), mem})
	return p, nil
}

// MapHost maps a part of a file into the context's address space.
func (c *engineContext) MapHost(f *os.File, offset, size uint64, at gpu.Ptr) (gpu.Ptr, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if at == 0 {
		at = hostBase
	}
	if offset%pageSize != 0 || size%pageSize != 0 || size == 0 || uint64(at)%pageSize != 0 ||
		uint64(at) >= simt.GlobalLimit || size > simt.GlobalLimit-uint64(at) {
		return 0, fmt.Errorf("map %d bytes of the host's at %#x: %w", size, uint64(at), gpu.ErrInvalidPtr)
	}
	c.mu.Lock()
	if c.hostMaps >= maxHostMaps {
		c.mu.Unlock()
		return 0, fmt.Errorf("map memory of the host beside %d parts: %w", maxHostMaps, gpu.ErrOutOfMemory)
	}
	c.hostMaps++
	c.mu.Unlock()
	data, err := mapPart(f, offset, size)
	if err != nil {
		return 0, errors.Join(err, c.keepHost(nil))
	}
	var merr error
	err = c.e.do(func() {
		if c.over.Load() {
			merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
		} else if merr = c.mem.Map(uint64(at), data); merr != nil {
			merr = fmt.Errorf("%w: %w", merr, gpu.ErrInvalidPtr)
		}
	})
	if err = errors.Join(err, merr); err != nil {
		return 0, errors.Join(err, unix.Munmap(data), c.keepHost(nil))
	}
	return at, c.keepHost(data)
}

// keepHost keeps a mapping until the context is freed; nil is one that failed. The lock can't be
// held while the pacing thread is waited for.
func (c *engineContext) keepHost(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case data == nil:
		c.hostMaps--
	case c.freed:
		return unix.Munmap(data)
	default:
		c.hosts = append(c.hosts, data)
	}
	return nil
}

// mapPart maps a part of a file in memory that can't be cut short.
func mapPart(f *os.File, offset, size uint64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at memory of the host: %w", err)
	}
	if err := memfd.Check(f, st.Size()); err != nil {
		return nil, err
	}
	if total := uint64(st.Size()); offset > total || size > total-offset {
		return nil, fmt.Errorf("%d bytes at %d of a file of %d: %w", size, offset, total, gpu.ErrInvalidPtr)
	}
	data, err := unix.Mmap(int(f.Fd()), int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memory of the host: %w", err)
	}
	return data, nil
}
