package soft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
	"vgpud/gpu/soft/vram"
)

// engineModule is a loaded module.
type engineModule struct {
	m       *simt.Module
	kernels []uint32
	image   vram.Range // of its variables; empty if it has none
	at      uint64     // address of its variables
	local   uint64     // for its kernels' local memory
	code    uint64     // of the host's memory
	mallocs bool       // a kernel may allocate memory
}

// Alloc allocates zeroed memory.
func (c *engineContext) Alloc(size uint64) (gpu.Ptr, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	r, err := c.take(size)
	if err != nil {
		return 0, err
	}
	p := c.base + r.Offset
	var merr error
	if err := c.e.do(func() {
		if c.over.Load() {
			merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
			return
		}
		// The range has the requested size, so that accesses beyond it fault.
		merr = c.mem.Map(p, c.data[r.Offset:r.Offset+size:r.Offset+size])
	}); err != nil {
		return 0, err
	}
	if merr != nil {
		return 0, errors.Join(merr, c.give(r.Offset))
	}
	return gpu.Ptr(p), nil
}

// take finds and reserves a range.
func (c *engineContext) take(size uint64) (vram.Range, error) {
	n := vram.Round(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 || n > c.table.Size() || c.table.Used()+c.local > c.table.Size()-n || !c.e.used.reserve(n) {
		return vram.Range{}, fmt.Errorf("allocate %d bytes: %w", size, gpu.ErrOutOfMemory)
	}
	r, err := c.table.Alloc(size)
	if err != nil {
		c.e.used.release(n)
		return vram.Range{}, fmt.Errorf("%w: %w", err, gpu.ErrOutOfMemory)
	}
	return r, nil
}

// give zeroes a range and frees it. It must not be mapped.
func (c *engineContext) give(offset uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.table.Free(offset)
	if err != nil {
		return fmt.Errorf("%w: %w", err, gpu.ErrInvalidPtr)
	}
	c.e.used.release(r.Size)
	return c.zero(r)
}

// pageSize is the granularity in which a file returns memory to the host.
const pageSize = 4096

// zero clears a freed range. Pages without any allocation are returned to the host, which provides
// them zeroed later; the rest is cleared. Thus a page that was never touched stays untouched.
func (c *engineContext) zero(r vram.Range) error {
	lo, hi := r.Offset, r.Offset+r.Size
	hole := c.table.Hole(lo)
	first := max(lo&^(pageSize-1), (hole.Offset+pageSize-1)&^(pageSize-1))
	last := min((hi+pageSize-1)&^(pageSize-1), (hole.Offset+hole.Size)&^(pageSize-1))
	if first >= last {
		clear(c.data[lo:hi])
		return nil
	}
	clear(c.data[lo:max(lo, first)])
	clear(c.data[min(hi, last):hi])
	err := unix.Fallocate(int(c.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(first), int64(last-first))
	if err != nil {
		return fmt.Errorf("zero a context's memory: %w", err)
	}
	return nil
}

// Free frees memory. A kernel that still uses it faults; CUDA would wait for the kernel.
func (c *engineContext) Free(p gpu.Ptr) error {
	if err := c.usable(); err != nil {
		return err
	}
	offset, ok := c.offsetOf(p)
	if !ok || c.isReserved(offset) {
		return fmt.Errorf("free %#x: %w", uint64(p), gpu.ErrInvalidPtr)
	}
	var merr error
	if err := c.e.do(func() {
		if merr = c.mem.Unmap(uint64(p)); merr != nil {
			merr = fmt.Errorf("free: %w: %w", merr, gpu.ErrInvalidPtr)
		}
	}); err != nil {
		return err
	}
	if merr != nil {
		return merr
	}
	return c.give(offset)
}

// isReserved reports whether a module's variables or the heap are at offset. The program must not
// free those.
func (c *engineContext) isReserved(offset uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits.heapSet && c.limits.heapAt <= offset && offset < c.limits.heapAt+c.limits.heap {
		return true
	}
	for _, m := range c.modules {
		if m.image.Size > 0 && m.image.Offset <= offset && offset < m.image.Offset+m.image.Size {
			return true
		}
	}
	return false
}

// Memory returns how much the context can still allocate, and its total.
func (c *engineContext) Memory() (free, total uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	total = c.table.Size()
	free = total - min(total, c.table.Used()+c.local)
	return min(free, c.e.o.MemoryBytes-c.e.used.taken()), total, nil
}

// LoadModule parses and compiles PTX in the caller's goroutine.
func (c *engineContext) LoadModule(ctx context.Context, image []byte, at gpu.Ptr) (ModuleInfo, error) {
	if err := c.usable(); err != nil {
		return ModuleInfo{}, err
	}
	if at != 0 && !isPlace(at, 0) {
		return ModuleInfo{}, fmt.Errorf("load a module at %#x: %w", uint64(at), gpu.ErrInvalidPtr)
	}
	stack, err := c.Limit(gpu.LimitStack)
	if err != nil {
		return ModuleInfo{}, err
	}
	m, err := c.e.recovering(func() (*engineModule, error) { return c.e.compile(ctx, image, stack) })
	if err != nil {
		return ModuleInfo{}, err
	}
	m.at = uint64(at)
	return c.install(m)
}

// install allocates a module's memory and assigns numbers to its kernels.
func (c *engineContext) install(m *engineModule) (ModuleInfo, error) {
	id, err := c.admit(m)
	if err != nil {
		return ModuleInfo{}, err
	}
	data, err := c.place(m)
	if err != nil {
		return ModuleInfo{}, errors.Join(err, c.unreserve(id, m))
	}
	info := ModuleInfo{
		ID: id, Image: gpu.Ptr(m.at), ImageOffset: m.image.Offset, ImageBytes: m.m.ImageBytes(), CodeBytes: m.code, LocalBytes: m.local,
	}
	if m.mallocs {
		if info.HeapBytes, err = c.needHeap(); err != nil {
			return ModuleInfo{}, errors.Join(err, c.unreserve(id, m))
		}
	}
	var merr error
	err = c.e.do(func() {
		if c.over.Load() {
			merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
			return
		}
		if len(data) > 0 {
			if merr = m.m.MapImage(&c.mem, data); merr != nil {
				merr = fmt.Errorf("%w: %w", merr, gpu.ErrInvalidPtr)
				return
			}
		}
		for i, k := range m.m.Kernels() {
			kid := id<<12 | uint32(i)
			c.kernels[kid] = k
			m.kernels = append(m.kernels, kid)
			info.Kernels = append(info.Kernels, KernelInfo{ID: kid, Attributes: k.Attributes(), Refused: k.Refused()})
		}
	})
	if err = errors.Join(err, merr); err != nil {
		return ModuleInfo{}, errors.Join(err, c.unreserve(id, m))
	}
	return info, nil
}

// place writes the module's variables into its memory, and returns the memory.
func (c *engineContext) place(m *engineModule) ([]byte, error) {
	if m.at == 0 {
		m.at = c.base + m.image.Offset
	}
	image := m.m.Place(m.at)
	c.mu.Lock() // a concurrent Close must not free the memory yet
	defer c.mu.Unlock()
	if c.over.Load() {
		return nil, fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	n := m.m.ImageBytes()
	data := c.data[m.image.Offset : m.image.Offset+n : m.image.Offset+n]
	copy(data, image) // variables without an initial value stay zero
	return data, nil
}

// admit checks the limits and reserves what the module needs.
func (c *engineContext) admit(m *engineModule) (uint32, error) {
	if n := m.m.ImageBytes(); n > 0 {
		r, err := c.take(n)
		if err != nil {
			return 0, fmt.Errorf("load a module's variables: %w", err)
		}
		m.image = r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fail := func(err error) (uint32, error) {
		if m.image.Size > 0 {
			if _, ferr := c.table.Free(m.image.Offset); ferr == nil {
				c.e.used.release(m.image.Size)
			}
		}
		return 0, err
	}
	if len(c.modules) >= c.e.o.Modules {
		return fail(fmt.Errorf("load a module beside %d: %w", len(c.modules), gpu.ErrOutOfMemory))
	}
	if !c.owner.code.reserve(m.code) {
		return fail(fmt.Errorf("load a module whose code takes %d bytes beside %d: %w", m.code, c.owner.code.taken(), gpu.ErrOutOfMemory))
	}
	if !c.e.code.reserve(m.code) {
		c.owner.code.release(m.code)
		return fail(fmt.Errorf("load a module whose code takes %d bytes beside everybody's %d: %w", m.code, c.e.code.taken(), gpu.ErrOutOfMemory))
	}
	// Local memory is reserved for the module that needs most, since kernels of a context share the
	// SMs.
	if m.local > c.local {
		more := m.local - c.local
		if c.table.Used()+m.local > c.table.Size() || !c.e.used.reserve(more) {
			c.releaseCode(m.code)
			return fail(fmt.Errorf("%d bytes of local memory for the threads an SM holds: %w", m.local, gpu.ErrOutOfMemory))
		}
		c.local = m.local
	}
	c.code += m.code
	var id uint32
	for id = 1; c.modules[id] != nil; id++ {
	}
	c.modules[id] = m
	return id, nil
}

// unreserve undoes admit.
func (c *engineContext) unreserve(id uint32, m *engineModule) error {
	c.mu.Lock()
	if c.modules[id] != m {
		c.mu.Unlock()
		return nil // Close has undone it
	}
	delete(c.modules, id)
	c.code -= m.code
	c.releaseCode(m.code)
	most := uint64(0)
	for _, o := range c.modules {
		most = max(most, o.local)
	}
	if most < c.local {
		c.e.used.release(c.local - most)
		c.local = most
	}
	c.mu.Unlock()
	if m.image.Size == 0 {
		return nil
	}
	return c.give(m.image.Offset)
}

// UnloadModule unloads a module. A launch that is already fetched keeps its code, but loses its
// variables.
func (c *engineContext) UnloadModule(id uint32) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.mu.Lock()
	m := c.modules[id]
	c.mu.Unlock()
	if m == nil {
		return fmt.Errorf("unload module %d: %w", id, gpu.ErrNotFound)
	}
	var merr error
	if err := c.e.do(func() {
		if m.kernels == nil && len(m.m.Kernels()) > 0 {
			merr = fmt.Errorf("unload module %d: %w", id, gpu.ErrNotFound) // another call unloaded it first
			return
		}
		for _, k := range m.kernels {
			delete(c.kernels, k)
		}
		m.kernels = nil
		if m.image.Size > 0 {
			merr = m.m.UnmapImage(&c.mem)
		}
	}); err != nil {
		return err
	}
	if merr != nil {
		return merr
	}
	return c.unreserve(id, m)
}

// Global returns a variable of a module.
func (c *engineContext) Global(id uint32, name string) (gpu.Ptr, uint64, error) {
	if err := c.usable(); err != nil {
		return 0, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.modules[id]
	if m == nil {
		return 0, 0, fmt.Errorf("module %d: %w", id, gpu.ErrNotFound)
	}
	offset, size, ok := m.m.Global(name)
	if !ok {
		return 0, 0, fmt.Errorf("variable %q: %w", name, gpu.ErrNotFound)
	}
	return gpu.Ptr(m.at + offset), size, nil
}

// kernel returns the kernel with the given number. It runs on the pacing thread.
func (c *engineContext) kernel(id uint32) *simt.Kernel { return c.kernels[id] }
