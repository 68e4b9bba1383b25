package cuda

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
)

// hostRange is memory of the process that CUDA knows: allocated page-locked or registered.
type hostRange struct {
	base, bytes uint64
	asked       uint64 // the bytes that an allocation was asked for
	flags       uint32
	x           *Context
	registered  bool
	managed     *managed           // of managed memory, or nil
	m           *driver.HostMemory // what the GPU copies from and to directly, or nil
	pages       Pointer            // mapped pages without m, or nil
}

// hostRanges are a process's, ordered by address.
type hostRanges struct {
	mu     sync.RWMutex
	all    []*hostRange
	shared atomic.Int64 // ranges that kernels reach, where the host offers that

	managing sync.Mutex // held while memory that kernels must reach is allocated; before mu
}

// find returns the range that an address lies in, or nil.
func (h *hostRanges) find(p uint64) *hostRange {
	h.mu.RLock()
	defer h.mu.RUnlock()
	i := sort.Search(len(h.all), func(i int) bool { return h.all[i].base > p }) - 1
	if i < 0 || p-h.all[i].base >= h.all[i].bytes {
		return nil
	}
	return h.all[i]
}

// add adds a range unless it overlaps another.
func (h *hostRanges) add(r *hostRange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := sort.Search(len(h.all), func(i int) bool { return h.all[i].base > r.base })
	if i > 0 && r.base-h.all[i-1].base < h.all[i-1].bytes || i < len(h.all) && h.all[i].base-r.base < r.bytes {
		return false
	}
	h.all = append(h.all, nil)
	copy(h.all[i+1:], h.all[i:])
	h.all[i] = r
	if r.m != nil {
		h.shared.Add(1)
	}
	return true
}

// remove removes the range that begins at base, if it is registered or not as asked for, and
// returns it.
func (h *hostRanges) remove(base uint64, registered bool) *hostRange {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := sort.Search(len(h.all), func(i int) bool { return h.all[i].base >= base })
	if i == len(h.all) || h.all[i].base != base || h.all[i].registered != registered {
		return nil
	}
	r := h.all[i]
	h.all = append(h.all[:i], h.all[i+1:]...)
	if r.m != nil {
		h.shared.Add(-1)
	}
	return r
}

// removeOf frees what was allocated in a context, which ends.
func (h *hostRanges) removeOf(x *Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.all[:0]
	for _, r := range h.all {
		if r.x == x {
			if r.m != nil {
				h.shared.Add(-1)
			}
			r.free()
		} else {
			kept = append(kept, r)
		}
	}
	h.all = kept
}

func (r *hostRange) free() {
	if r.m != nil {
		r.m.Free()
	}
	if r.pages != nil {
		_ = unix.MunmapPtr(r.pages, uintptr(r.bytes))
	}
}

// window returns the part of the shared memory that n bytes at p are, if the GPU copies from and to
// them directly.
func (h *hostRanges) window(p, n uint64) (m *driver.HostMemory, at int) {
	r := h.find(p)
	if r == nil || r.m == nil || n > r.bytes-(p-r.base) {
		return nil, 0
	}
	return r.m, int(p - r.base)
}

// reached reports whether an address is of memory of the process that the GPU writes to directly.
func (h *hostRanges) reached(p uint64) bool {
	if h.shared.Load() == 0 {
		return false
	}
	r := h.find(p)
	return r != nil && r.m != nil
}

// hostWait is how long an allocation waits for shared memory that copies use.
const hostWait = 20 * time.Millisecond

// allocateHost allocates page-locked memory: a part of the memory that is shared with the host, or
// ordinary pages where that has no room. Copies of those go through shared memory. Kernels don't reach
// them, so memory that is asked for to be mapped is shared or none.
func (c *Call) allocateHost(x *Context, n uint64, flags uint32) (Pointer, Result) {
	if n == 0 || n > 1<<46 {
		return nil, ErrorInvalidValue
	}
	r := &hostRange{flags: flags, x: x}
	if flags&hostAllocMapped != 0 && c.d.managedMemory() {
		return c.allocateReached(r, n)
	}
	// Copies need some of the shared memory, too.
	if hostPages(n) <= uint64(x.d.gpu.Info().SharedBytes)/8 {
		if p, result := c.allocateShared(r, n); result != ErrorOutOfMemory {
			return p, result
		}
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(hostPages(n)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, ErrorOutOfMemory
	}
	r.pages = p
	return p, c.addHost(r, p, n)
}

// hostPages returns the size of the pages that n bytes take.
func hostPages(n uint64) uint64 {
	const page = 4096
	return (n + page - 1) &^ (page - 1)
}

// allocateShared allocates a range as a part of the memory that is shared with the host. It returns
// ErrorOutOfMemory where that has no room.
func (c *Call) allocateShared(r *hostRange, n uint64) (p Pointer, result Result) {
	ctx, cancel := context.WithTimeout(context.Background(), hostWait)
	defer cancel()
	m, err := r.x.d.gpu.AllocHost(ctx, int(hostPages(n)))
	if err != nil {
		return nil, ErrorOutOfMemory
	}
	if m.Use(func(b []byte) { clear(b); p = startOf(b) }) != nil {
		m.Free()
		return nil, ErrorOutOfMemory
	}
	r.m = m
	return p, c.addHost(r, p, n)
}

// addHost adds a range that was allocated.
func (c *Call) addHost(r *hostRange, p Pointer, n uint64) Result {
	r.base, r.bytes, r.asked = addressOf(p), hostPages(n), n
	if !c.d.host.add(r) {
		r.free()
		return ErrorUnknown
	}
	return Success
}

// reachHost has the context's kernels reach all page-locked memory at its own addresses, as they do
// under unified addressing. That needs a first call for any of that memory. Where the host can't,
// kernels get addresses by cuMemHostGetDevicePointer or not at all: launches don't ask again, since
// the host would lock all the pages again before it fails.
func (x *Context) reachHost() {
	h := &x.d.host
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, r := range h.all {
		if r.m != nil {
			// After an error a kernel that uses such an address faults, and one that uses none must not.
			// An error that ends the context ends the launch as well.
			_, _ = x.gpu.HostAddress(context.Background(), r.m)
			x.reaches.Store(true)
			return
		}
	}
}

// hostAllocMapped is CU_MEMHOSTALLOC_DEVICEMAP.
const hostAllocMapped = 2

// hostAllocFlags are CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP and _WRITECOMBINED.
const hostAllocFlags = 1 | hostAllocMapped | 4

// MemHostAlloc is cuMemHostAlloc.
func (c *Call) MemHostAlloc(out *Pointer, n uint64, flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || flags&^hostAllocFlags != 0 {
		return ErrorInvalidValue
	}
	p, r := c.allocateHost(x, n, flags)
	if r == Success {
		put(out, p)
	}
	return r
}

// MemAllocHostV2 is cuMemAllocHost_v2.
func (c *Call) MemAllocHostV2(out *Pointer, n uint64) Result { return c.MemHostAlloc(out, n, 0) }

// MemFreeHost is cuMemFreeHost.
func (c *Call) MemFreeHost(p Pointer) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if p == nil {
		return Success
	}
	free := func() Result {
		r := c.d.host.remove(addressOf(p), false)
		if r == nil {
			return ErrorInvalidValue
		}
		r.free()
		return Success
	}
	if c.d.host.managedAt(addressOf(p)) != nil { // cuMemFree frees it
		return ErrorInvalidValue
	}
	var before []point
	if r := c.d.host.find(addressOf(p)); r != nil && r.m != nil {
		before = c.d.reaching()
	}
	// Freed memory may become part of a copy of other memory: kernels that write to it come first.
	return c.waitFor(before, free)
}

// reaching returns the points at which the kernels so far that reach page-locked memory have ended.
func (d *Driver) reaching() (goals []point) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x := range d.contexts {
		if x.reaches.Load() {
			goals = append(goals, x.everything()...)
		}
	}
	return goals
}

// hostRegisterFlags are CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP, _IOMEMORY and _READ_ONLY.
const hostRegisterFlags = 1 | 2 | 4 | 8

// MemHostRegisterV2 is cuMemHostRegister_v2. The pages stay ordinary ones: copies of them go
// through shared memory.
func (c *Call) MemHostRegisterV2(p Pointer, n uint64, flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if p == nil || n == 0 || flags&^hostRegisterFlags != 0 || access(p, n) != nil {
		return ErrorInvalidValue
	}
	if flags&4 != 0 {
		return ErrorNotSupported
	}
	if !c.d.host.add(&hostRange{base: addressOf(p), bytes: n, flags: flags, x: x, registered: true}) {
		return ErrorHostMemoryAlreadyRegistered
	}
	return Success
}

// MemHostUnregister is cuMemHostUnregister.
func (c *Call) MemHostUnregister(p Pointer) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if p == nil {
		return ErrorInvalidValue
	}
	if c.d.host.remove(addressOf(p), true) == nil {
		return ErrorHostMemoryNotRegistered
	}
	return Success
}

// MemHostGetFlags is cuMemHostGetFlags.
func (c *Call) MemHostGetFlags(flags *uint32, p Pointer) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	r := c.d.host.find(addressOf(p))
	if flags == nil || r == nil {
		return ErrorInvalidValue
	}
	put(flags, r.flags)
	return Success
}
