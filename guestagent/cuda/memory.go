package cuda

import (
	"context"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
)

// allocation is GPU memory that a program allocated.
type allocation struct {
	base, bytes uint64
	id          uint64
}

// allocations are a context's, ordered by address.
type allocations struct {
	mu  sync.RWMutex
	all []allocation
}

// find returns the allocation that an address lies in.
func (a *allocations) find(p uint64) (allocation, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i := sort.Search(len(a.all), func(i int) bool { return a.all[i].base > p }) - 1
	if i < 0 || p-a.all[i].base >= a.all[i].bytes {
		return allocation{}, false
	}
	return a.all[i], true
}

func (a *allocations) add(m allocation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.all), func(i int) bool { return a.all[i].base > m.base })
	a.all = slices.Insert(a.all, i, m)
}

// remove removes the allocation that begins at base and reports whether there is one.
func (a *allocations) remove(base uint64) (allocation, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.all), func(i int) bool { return a.all[i].base >= base })
	if i == len(a.all) || a.all[i].base != base {
		return allocation{}, false
	}
	m := a.all[i]
	a.all = slices.Delete(a.all, i, i+1)
	return m, true
}

// meets reports whether any allocation has an address of s.
func (a *allocations) meets(s span) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.ContainsFunc(a.all, func(m allocation) bool { return s.meets(span{m.base, m.bytes}) })
}

// releaseAll gives back the addresses of all.
func (a *allocations) releaseAll(r *reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.all {
		r.release(m.base, m.bytes)
	}
	a.all = nil
}

// deviceRange checks that n bytes at p are GPU memory that a copy or set may use: if p lies in an
// allocation of the context, all of them must. The program's own memory is refused here, as its use would
// fail later, in calls that have no part in it. Other addresses, such as those that kernels hand out, are
// left to the device.
func (x *Context) deviceRange(p, n uint64) Result {
	if p == 0 || p+n < p {
		return ErrorInvalidValue
	}
	if m, ok := x.memory.find(p); ok {
		if n > m.bytes-(p-m.base) {
			return ErrorInvalidValue
		}
	} else if h := x.d.host.managedAt(p); h != nil {
		if n > h.bytes-(p-h.base) {
			return ErrorInvalidValue
		}
	} else if !x.isDevice(p) && x.d.host.find(p) == nil && readable(p) {
		return ErrorInvalidValue
	}
	return Success
}

// readable reports whether the process can read the byte at p. The kernel tries it: a fault here could
// reach the program's handler. GPU addresses are reserved without any access.
func readable(p uint64) bool {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	n, err := unix.ProcessVMReadv(unix.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(p), Len: 1}}, 0)
	return err == nil && n == 1
}

// isDevice reports whether an address is of GPU memory of the context.
func (x *Context) isDevice(p uint64) bool {
	_, _, ok := x.rangeOf(p)
	return ok
}

// rangeOf returns the allocation, the managed memory or the module's variable that an address lies in.
func (x *Context) rangeOf(p uint64) (base, bytes uint64, ok bool) {
	if m, ok := x.memory.find(p); ok {
		return m.base, m.bytes, true
	}
	if h := x.d.host.managedAt(p); h != nil && h.x == x {
		return h.base, h.asked, p-h.base < h.asked
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for m := range x.modules {
		for _, g := range m.globals {
			if p >= g.address && p-g.address < g.bytes {
				return g.address, g.bytes, true
			}
		}
	}
	return 0, 0, false
}

// mostConflicts is how many allocations may fail because the process has something else at their
// addresses.
const mostConflicts = 16

// allocGranule is what the GPU memory of an allocation is a multiple of. A kernel may access all of
// it, as with CUDA: programs that store 8 bytes into an allocation of 4 run there.
const allocGranule = 512

func granular(n uint64) uint64 { return max(n, (n+allocGranule-1)&^(allocGranule-1)) }

// allocate allocates GPU memory at addresses that the process has nothing at. The result may be
// beginFirst.
func (x *Context) allocate(n uint64) (uint64, Result) {
	if t := x.task; t != nil {
		if p, r, recorded := t.allocate(n); recorded {
			return p, r
		}
	}
	ctx := context.Background()
	var bad []driver.Ptr
	defer func() {
		for _, p := range bad {
			_ = x.gpu.Free(ctx, p)
		}
	}()
	for range mostConflicts {
		p, err := x.gpu.Alloc(ctx, granular(n))
		if err != nil {
			return 0, x.fail(err)
		}
		if !x.space.takes(uint64(p), n) && x.d.reserved.reserve(uint64(p), n) {
			x.memory.add(allocation{uint64(p), n, x.d.ids.Add(1)})
			return uint64(p), Success
		}
		bad = append(bad, p)
	}
	return 0, ErrorOutOfMemory
}

// MemAllocV2 is cuMemAlloc_v2.
func (c *Call) MemAllocV2(out *uint64, n uint64) Result {
	x, r := c.context()
	if r == Success {
		r = c.unsafe()
	}
	if r != Success {
		return r
	}
	if out == nil || n == 0 {
		return ErrorInvalidValue
	}
	p, r := x.allocate(n)
	switch r {
	case beginFirst:
		return c.beginTask(x, func() Result { return c.MemAllocV2(out, n) })
	case Success:
		put(out, p)
	}
	return r
}

// pitchAlign is what a pitch is a multiple of.
const pitchAlign = 512

// MemAllocPitchV2 is cuMemAllocPitch_v2.
func (c *Call) MemAllocPitchV2(out, pitch *uint64, width, height uint64, element uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || pitch == nil || width == 0 || height == 0 || element != 4 && element != 8 && element != 16 {
		return ErrorInvalidValue
	}
	row := (width + pitchAlign - 1) &^ (pitchAlign - 1)
	if row < width || height > 1<<62/row {
		return ErrorOutOfMemory
	}
	p, r := x.allocate(row * height)
	switch r {
	case beginFirst:
		return c.beginTask(x, func() Result { return c.MemAllocPitchV2(out, pitch, width, height, element) })
	case Success:
		put(out, p)
		put(pitch, row)
	}
	return r
}

// MemFreeV2 is cuMemFree_v2. As CUDA's, it waits for all commands before it.
func (c *Call) MemFreeV2(p uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if p == 0 {
		return Success
	}
	if x.space.takes(p, 1) { // it is unmapped, not freed
		return ErrorInvalidValue
	}
	if m := c.d.host.managedAt(p); m != nil {
		if p != m.base {
			return ErrorInvalidValue
		}
		return c.freeManaged(m)
	}
	if b := c.d.graphMemory.find(p); b != nil {
		before := b.x.everything()
		if !c.d.graphMemory.free(b, func() { b.freedBehind(before) }) {
			return ErrorInvalidValue
		}
		return c.waitFor(before, func() Result {
			c.d.graphMemory.trim(c.d)
			return Success
		})
	}
	m, ok := x.memory.remove(p)
	if !ok {
		// With unified addresses it may be of another context.
		if x = c.d.owner(p); x == nil {
			return ErrorInvalidValue
		}
		if m, ok = x.memory.remove(p); !ok {
			return ErrorInvalidValue
		}
	}
	c.d.pools.takeOut(p)
	// Channels are not in order among each other: commands that use the memory come first.
	return c.waitFor(x.everything(), func() Result {
		err := x.free(p)
		x.d.reserved.release(m.base, m.bytes)
		if err != nil {
			return x.fail(err)
		}
		return Success
	})
}

// owner returns the context that an address of GPU memory is of, or nil.
func (d *Driver) owner(p uint64) *Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x := range d.contexts {
		if x.isDevice(p) {
			return x
		}
	}
	return nil
}

// MemGetInfoV2 is cuMemGetInfo_v2.
func (c *Call) MemGetInfoV2(free, total *uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if free == nil || total == nil {
		return ErrorInvalidValue
	}
	if x.pending() {
		return c.recorded(x, func(t *task) error {
			all := c.d.taskLimit()
			put(free, all-min(t.record.Bytes(), all))
			put(total, all)
			return nil
		}, func() Result { return c.MemGetInfoV2(free, total) })
	}
	f, t, err := x.gpu.MemInfo(context.Background())
	if err != nil {
		return x.fail(err)
	}
	if k := x.task; k != nil && k.less { // what was asked for is not all that the program may have
		all := c.d.taskLimit()
		f, t = all-min(t-f, all), all
	}
	put(free, f)
	put(total, t)
	return Success
}

// MemGetAddressRangeV2 is cuMemGetAddressRange_v2. A module's variable is a range of its own, which
// libgomp relies on.
func (c *Call) MemGetAddressRangeV2(base, size *uint64, p uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	at, bytes, ok := x.rangeOf(p)
	if !ok {
		if o := c.d.owner(p); o != nil {
			at, bytes, ok = o.rangeOf(p)
		}
	}
	if !ok {
		return ErrorNotFound
	}
	if base != nil {
		put(base, at)
	}
	if size != nil {
		put(size, bytes)
	}
	return Success
}
