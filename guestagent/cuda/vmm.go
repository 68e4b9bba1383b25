package cuda

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"vgpud/guestagent/driver"
)

// Virtual memory management: a program reserves addresses, makes memory and maps it there. The
// virtual GPU allocates at addresses that the guest chooses, so memory comes to be when it is mapped.
// Unmapped while the program has a handle, it is kept elsewhere until it is mapped again. It can't
// be mapped at two places at a time.

// memHandle is a CUmemGenericAllocationHandle.
type memHandle struct {
	handle Handle
	x      *Context
	prop   MemAllocationProp
	bytes  uint64
	refs   int        // that the program has not released
	at     uint64     // where it is mapped; 0: nowhere
	kept   driver.Ptr // what it holds while it is not mapped; 0: zeros
	access uint32     // CUmemAccess_flags that were set
}

// addressSpace is what a context's virtual memory management has. The lock comes before Context.mu.
type addressSpace struct {
	mu       sync.Mutex
	reserved []span // by address
	mapped   []*memHandle
}

// span is a range of addresses.
type span struct{ base, bytes uint64 }

func (s span) holds(p, n uint64) bool { return p >= s.base && n <= s.bytes && p-s.base <= s.bytes-n }

func (s span) meets(o span) bool { return s.base < o.base+o.bytes && o.base < s.base+s.bytes }

// MemAllocationProp is CUmemAllocationProp.
type MemAllocationProp struct {
	Type, HandleTypes uint32
	Location          MemLocation
	_                 Pointer
	Flags             [8]byte
}

func (p *MemAllocationProp) check() Result {
	switch {
	case p == nil, p.Type != pinned:
		return ErrorInvalidValue
	case !p.Location.valid(), p.HandleTypes != 0, p.Flags != [8]byte{}:
		return ErrorNotSupported
	}
	return Success
}

// grain is what sizes and addresses of this page are multiples of: what is reserved of the process's
// own addresses at a time. The GPU's own grain divides it.
const grain = reservedPiece

// MemGetAllocationGranularity is cuMemGetAllocationGranularity.
func (c *Call) MemGetAllocationGranularity(out *uint64, p *MemAllocationProp, option uint32) Result {
	if out == nil || option > 1 {
		return ErrorInvalidValue
	}
	if r := p.check(); r != Success {
		return r
	}
	put(out, grain)
	return Success
}

// MemAddressReserve is cuMemAddressReserve. A hint of an address is heeded where it can be.
func (c *Call) MemAddressReserve(out *uint64, n, align, hint, flags uint64) Result {
	x, r := c.context()
	switch {
	case r != Success:
		return r
	case out == nil, n == 0, n%grain != 0, align&(align-1) != 0, flags != 0:
		return ErrorInvalidValue
	}
	all, err := x.gpu.AddressRange(context.Background())
	if err != nil {
		return x.fail(err)
	}
	if all.Grain == 0 || grain%all.Grain != 0 {
		return ErrorNotSupported
	}
	a := &x.space
	a.mu.Lock()
	defer a.mu.Unlock()
	whole := span{uint64(all.Base), all.Bytes}
	take := func(p uint64) bool {
		s := span{p, n}
		if !whole.holds(p, n) || slices.ContainsFunc(a.reserved, s.meets) || x.memory.meets(s) || !x.d.reserved.reserve(p, n) {
			return false
		}
		a.reserved = append(a.reserved, s)
		slices.SortFunc(a.reserved, func(s, o span) int { return cmp.Compare(s.base, o.base) })
		put(out, p)
		return true
	}
	if hint != 0 && hint%max(align, grain) == 0 && take(hint) {
		return Success
	}
	// From the end: ordinary allocations begin at the beginning.
	align = max(align, grain)
	end := whole.base + whole.bytes
	for i := len(a.reserved); i >= 0 && end > whole.base+n; i-- {
		for p, tries := (end-n)&^(align-1), 0; p >= whole.base && tries < mostConflicts; p, tries = p-align, tries+1 {
			if take(p) {
				return Success
			}
		}
		if i > 0 {
			end = a.reserved[i-1].base
		}
	}
	return ErrorOutOfMemory
}

// MemAddressFree is cuMemAddressFree.
func (c *Call) MemAddressFree(p, n uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	a := &x.space
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.reserved, span{p, n})
	if i < 0 || slices.ContainsFunc(a.mapped, func(m *memHandle) bool { return span{p, n}.holds(m.at, m.bytes) }) {
		return ErrorInvalidValue
	}
	a.reserved = slices.Delete(a.reserved, i, i+1)
	x.d.reserved.release(p, n)
	return Success
}

// MemCreate is cuMemCreate.
func (c *Call) MemCreate(out *uint64, n uint64, p *MemAllocationProp, flags uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || n == 0 || n%grain != 0 || flags != 0 {
		return ErrorInvalidValue
	}
	if r := p.check(); r != Success {
		return r
	}
	if _, total, err := x.gpu.MemInfo(context.Background()); err != nil {
		return x.fail(err)
	} else if n > total {
		return ErrorOutOfMemory
	}
	h := &memHandle{x: x, prop: *p, bytes: n, refs: 1}
	if h.handle = c.d.objects.add(h); h.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, uint64(h.handle))
	return Success
}

// memHandle returns memory of the current context by its handle, with its context's lock held.
func (c *Call) withMemory(handle uint64, f func(*memHandle) Result) Result {
	h := get[memHandle](&c.d.objects, Handle(handle))
	if h == nil || h.x.gone.Load() {
		return ErrorInvalidValue
	}
	h.x.space.mu.Lock()
	defer h.x.space.mu.Unlock()
	if h.refs == 0 {
		return ErrorInvalidValue
	}
	return f(h)
}

// MemMap is cuMemMap.
func (c *Call) MemMap(p, n, at, handle, flags uint64) Result {
	if flags != 0 || at != 0 || n == 0 {
		return ErrorInvalidValue
	}
	return c.withMemory(handle, func(h *memHandle) Result {
		x, a := h.x, &h.x.space
		s := span{p, n}
		switch {
		case p%grain != 0 || !slices.ContainsFunc(a.reserved, func(r span) bool { return r.holds(p, n) }),
			slices.ContainsFunc(a.mapped, func(m *memHandle) bool { return s.meets(span{m.at, m.bytes}) }):
			return ErrorInvalidValue
		case n != h.bytes, h.at != 0: // a part, or a second place
			return ErrorNotSupported
		}
		ctx := context.Background()
		if err := x.gpu.AllocAt(ctx, driver.Ptr(p), n); err != nil {
			return x.fail(err)
		}
		if h.kept != 0 {
			err := x.move(driver.Ptr(p), h.kept, n)
			if err == nil {
				err = x.gpu.Free(ctx, h.kept)
			}
			if err != nil {
				_ = x.gpu.Free(ctx, driver.Ptr(p))
				return x.fail(err)
			}
			h.kept = 0
		}
		if !x.d.reserved.reserve(p, n) { // cannot fail: it is reserved
			return ErrorUnknown
		}
		h.at, h.access = p, 0
		a.mapped = append(a.mapped, h)
		x.memory.add(allocation{base: p, bytes: n, id: x.d.ids.Add(1)})
		return Success
	})
}

// move copies memory and waits for that.
func (x *Context) move(dst, src driver.Ptr, n uint64) error {
	ctx := context.Background()
	p, err := x.gpu.Own().Copy(ctx, dst, src, n)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// MemUnmap is cuMemUnmap. It waits for all commands before it.
func (c *Call) MemUnmap(p, n uint64) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	return c.waitFor(x.everything(), func() Result { return x.unmap(span{p, n}) })
}

func (x *Context) unmap(s span) Result {
	a, ctx := &x.space, context.Background()
	a.mu.Lock()
	defer a.mu.Unlock()
	found := false
	for _, m := range a.mapped {
		if s.meets(span{m.at, m.bytes}) {
			if found = true; !s.holds(m.at, m.bytes) {
				return ErrorInvalidValue
			}
		}
	}
	if !found {
		return ErrorInvalidValue
	}
	for i := len(a.mapped) - 1; i >= 0; i-- {
		m := a.mapped[i]
		if !s.holds(m.at, m.bytes) {
			continue
		}
		if m.refs > 0 {
			kept, err := x.gpu.Alloc(ctx, m.bytes)
			if err == nil {
				err = x.move(kept, driver.Ptr(m.at), m.bytes)
			}
			if err != nil {
				return x.fail(err)
			}
			m.kept = kept
		}
		x.memory.remove(m.at)
		x.d.reserved.release(m.at, m.bytes)
		err := x.gpu.Free(ctx, driver.Ptr(m.at))
		m.at = 0
		a.mapped = slices.Delete(a.mapped, i, i+1)
		if err != nil {
			return x.fail(err)
		}
	}
	return Success
}

// MemRelease is cuMemRelease. Memory that is mapped stays until it is unmapped.
func (c *Call) MemRelease(handle uint64) Result {
	return c.withMemory(handle, func(h *memHandle) Result {
		if h.refs--; h.refs > 0 {
			return Success
		}
		c.d.objects.remove(h.handle)
		if h.kept != 0 {
			if err := h.x.gpu.Free(context.Background(), h.kept); err != nil {
				return h.x.fail(err)
			}
		}
		return Success
	})
}

// MemRetainAllocationHandle is cuMemRetainAllocationHandle.
func (c *Call) MemRetainAllocationHandle(out *uint64, p Pointer) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	return c.mapping(addressOf(p), 1, func(h *memHandle) Result {
		if h.refs == 0 { // its handle is gone
			if h.handle = c.d.objects.add(h); h.handle == 0 {
				return ErrorOutOfMemory
			}
		}
		h.refs++
		put(out, uint64(h.handle))
		return Success
	})
}

// mapping calls f with the memory mapped at each of n bytes. All of them must be mapped.
func (c *Call) mapping(p, n uint64, f func(*memHandle) Result) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	a := &x.space
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == 0 {
		return ErrorInvalidValue
	}
	for end := p + n; p < end; {
		i := slices.IndexFunc(a.mapped, func(m *memHandle) bool { return span{m.at, m.bytes}.holds(p, 1) })
		if i < 0 {
			return ErrorInvalidValue
		}
		if r := f(a.mapped[i]); r != Success {
			return r
		}
		p = a.mapped[i].at + a.mapped[i].bytes
	}
	return Success
}

// MemSetAccess is cuMemSetAccess. Memory that is mapped can always be read and written.
func (c *Call) MemSetAccess(p, n uint64, list *MemAccess, count uint64) Result {
	if list == nil || count == 0 || count > 1<<16 {
		return ErrorInvalidValue
	}
	flags := uint32(0)
	for _, a := range array(list, count) {
		if !a.Location.valid() {
			return ErrorInvalidDevice
		}
		if a.Flags != 0 && a.Flags != 1 && a.Flags != readWrite {
			return ErrorInvalidValue
		}
		flags = a.Flags
	}
	return c.mapping(p, n, func(h *memHandle) Result {
		h.access = flags
		return Success
	})
}

// MemGetAccess is cuMemGetAccess.
func (c *Call) MemGetAccess(out *uint64, l *MemLocation, p uint64) Result {
	if out == nil || !l.valid() {
		return ErrorInvalidValue
	}
	return c.mapping(p, 1, func(h *memHandle) Result {
		put(out, uint64(h.access))
		return Success
	})
}

// MemGetAllocationPropertiesFromHandle is cuMemGetAllocationPropertiesFromHandle.
func (c *Call) MemGetAllocationPropertiesFromHandle(out *MemAllocationProp, handle uint64) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	return c.withMemory(handle, func(h *memHandle) Result {
		*out = h.prop
		return Success
	})
}

// takes reports whether a program has reserved any of n bytes at p.
func (a *addressSpace) takes(p, n uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.reserved, span{p, n}.meets)
}

// forget gives back the addresses of a context that ends.
func (a *addressSpace) forget(d *Driver) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.reserved {
		d.reserved.release(s.base, s.bytes)
	}
	a.reserved, a.mapped = nil, nil
}
