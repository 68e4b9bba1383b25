package cuda

import (
	"context"
	"slices"
	"sync"

	"vgpud/mediator/vgpu/abi"
)

// Managed memory is page-locked memory of the process that kernels reach at its own addresses, so that
// the program and kernels share it at any time. It stays where it is: advice and prefetches can be
// queried, and change nothing else.

// managedPage is what advice and prefetches apply to.
const managedPage = 4096

// reachedShare is the part of the memory shared with the host that managed and mapped memory may take.
// The rest is for copies.
const reachedShare = 0.75

// Kinds of CUmemLocation.
const (
	locationNone   = 0
	locationDevice = 1
	locationHost   = 2
	locationNUMA   = 3
	locationOwn    = 4 // the NUMA node of the calling thread
)

// Devices that are none.
const (
	deviceCPU     = -1
	deviceInvalid = -2
)

// hints are what a program said of a page.
type hints struct {
	readMostly           bool
	onDevice, onHost     bool // CU_MEM_ADVISE_SET_ACCESSED_BY
	preferred, preloaded MemLocation
}

// managed is what a range has that is managed memory.
type managed struct {
	mu    sync.Mutex
	pages []hints // nil before the first hint
}

// managedMemory reports whether kernels reach memory of the process.
func (d *Driver) managedMemory() bool {
	return d.gpu.Info().Features&abi.FeatureWindowAddresses != 0
}

// MemAllocManaged is cuMemAllocManaged.
func (c *Call) MemAllocManaged(out *uint64, n uint64, flags uint32) Result {
	const global, host = 1, 2
	x, r := c.context()
	if r == Success {
		r = c.unsafe()
	}
	if r != Success {
		return r
	}
	if out == nil || n == 0 || flags != global && flags != host {
		return ErrorInvalidValue
	}
	if !c.d.managedMemory() {
		return ErrorNotSupported
	}
	m, p, r := c.allocateManaged(x, n)
	if r != Success {
		return r
	}
	a, err := x.gpu.HostAddress(context.Background(), m.m)
	if err == nil && uint64(a) != m.base {
		err = abi.StatusNotSupported
	}
	if err != nil {
		c.d.host.remove(m.base, false)
		m.free()
		return x.fail(err)
	}
	x.reaches.Store(true)
	put(out, addressOf(p))
	return Success
}

// allocateManaged allocates memory of the process that kernels can reach.
func (c *Call) allocateManaged(x *Context, n uint64) (*hostRange, Pointer, Result) {
	r := &hostRange{x: x, managed: &managed{}}
	p, result := c.allocateReached(r, n)
	if result != Success {
		return nil, nil, result
	}
	return r, p, Success
}

// allocateReached allocates a range that kernels must reach.
func (c *Call) allocateReached(r *hostRange, n uint64) (Pointer, Result) {
	h := &c.d.host
	h.managing.Lock()
	defer h.managing.Unlock()
	if n > 1<<46 || h.reachedBytes()+n > uint64(reachedShare*float64(r.x.d.gpu.Info().SharedBytes)) {
		return nil, ErrorOutOfMemory
	}
	return c.allocateShared(r, n)
}

// reachedBytes returns how much memory there is that kernels must reach.
func (h *hostRanges) reachedBytes() (n uint64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, r := range h.all {
		if r.managed != nil || r.m != nil && r.flags&hostAllocMapped != 0 {
			n += r.bytes
		}
	}
	return n
}

// managedAt returns the managed memory that an address lies in, or nil.
func (h *hostRanges) managedAt(p uint64) *hostRange {
	if h.shared.Load() == 0 {
		return nil
	}
	if r := h.find(p); r != nil && r.managed != nil {
		return r
	}
	return nil
}

// freeManaged frees managed memory. Like cuMemFree it waits for all that may use the memory.
func (c *Call) freeManaged(r *hostRange) Result {
	return c.waitFor(c.d.reaching(), func() Result {
		if c.d.host.remove(r.base, false) != r {
			return ErrorInvalidValue
		}
		r.free()
		return Success
	})
}

// hinted calls f with the pages of managed memory that a range meets.
func (c *Call) hinted(p, n uint64, f func(pages []hints)) Result {
	r := c.d.host.managedAt(p)
	if r == nil || n == 0 || n > r.bytes-(p-r.base) {
		return ErrorInvalidValue
	}
	m := r.managed
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		m.pages = make([]hints, (r.bytes+managedPage-1)/managedPage)
	}
	f(m.pages[(p-r.base)/managedPage : (p-r.base+n+managedPage-1)/managedPage])
	return Success
}

// check returns an error if there is no such place. A node of the host's memory is as good as any.
func (l *MemLocation) check() Result {
	switch {
	case l == nil:
		return ErrorInvalidValue
	case l.Type == locationDevice && l.ID == 0, l.Type == locationHost, l.Type == locationOwn, l.Type == locationNUMA && l.ID >= 0:
		return Success
	}
	return ErrorInvalidDevice
}

// locationOf returns the place that a device's number names.
func locationOf(device int32) *MemLocation {
	if device == deviceCPU {
		return &MemLocation{Type: locationHost}
	}
	return &MemLocation{Type: locationDevice, ID: device}
}

// device returns the number of a place.
func (l MemLocation) device() int32 {
	switch l.Type {
	case locationNone:
		return deviceInvalid
	case locationDevice:
		return l.ID
	}
	return deviceCPU
}

// MemAdvise is cuMemAdvise.
func (c *Call) MemAdvise(p, n uint64, advice uint32, device int32) Result {
	return c.MemAdviseV2(p, n, advice, locationOf(device))
}

// MemAdviseV2 is cuMemAdvise_v2.
func (c *Call) MemAdviseV2(p, n uint64, advice uint32, l *MemLocation) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	var change func(h *hints)
	needs := true // a place
	switch advice {
	case MemAdviseSetReadMostly, MemAdviseUnsetReadMostly:
		needs = false
		change = func(h *hints) { h.readMostly = advice == MemAdviseSetReadMostly }
	case MemAdviseSetPreferredLocation:
		change = func(h *hints) { h.preferred = *l }
	case MemAdviseUnsetPreferredLocation:
		needs = false
		change = func(h *hints) { h.preferred = MemLocation{} }
	case MemAdviseSetAccessedBy, MemAdviseUnsetAccessedBy:
		change = func(h *hints) {
			to := &h.onHost
			if l.Type == locationDevice {
				to = &h.onDevice
			}
			*to = advice == MemAdviseSetAccessedBy
		}
	default:
		return ErrorInvalidValue
	}
	if needs {
		if r := l.check(); r != Success {
			return r
		}
	}
	return c.hinted(p, n, func(pages []hints) {
		for i := range pages {
			change(&pages[i])
		}
	})
}

// MemPrefetchAsync is cuMemPrefetchAsync.
func (c *Call) MemPrefetchAsync(p, n uint64, device int32, h Handle) Result {
	return c.MemPrefetchAsyncV2(p, n, locationOf(device), 0, h)
}

// MemPrefetchAsyncV2 is cuMemPrefetchAsync_v2.
func (c *Call) MemPrefetchAsyncV2(p, n uint64, l *MemLocation, flags uint32, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if r := l.check(); r != Success {
		return r
	}
	if flags != 0 {
		return ErrorInvalidValue
	}
	if c.captures(s) {
		if r, done := c.capture(s, nil); done {
			return r
		}
	}
	return c.hinted(p, n, func(pages []hints) {
		for i := range pages {
			pages[i].preloaded = *l
		}
	})
}

// MemRangeGetAttribute is cuMemRangeGetAttribute.
func (c *Call) MemRangeGetAttribute(out Pointer, size uint64, attribute uint32, p, n uint64) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if out == nil || size < 4 || size%4 != 0 || size > 1<<16 || size != 4 && attribute != MemRangeAttributeAccessedBy ||
		attribute < MemRangeAttributeReadMostly || attribute > MemRangeAttributeLastPrefetchLocationId {
		return ErrorInvalidValue
	}
	return c.hinted(p, n, func(pages []hints) {
		to := array(value[int32](out), size/4)
		for i, v := range hintsOf(pages, attribute, len(to)) {
			put(&to[i], v)
		}
	})
}

// hintsOf returns an attribute of pages as n numbers: what holds for all of them.
func hintsOf(pages []hints, attribute uint32, n int) []int32 {
	all := func(is func(h *hints) bool) bool {
		return !slices.ContainsFunc(pages, func(h hints) bool { return !is(&h) })
	}
	place := func(of func(h *hints) MemLocation) MemLocation {
		if first := of(&pages[0]); all(func(h *hints) bool { return of(h) == first }) {
			return first
		}
		return MemLocation{}
	}
	preferred := place(func(h *hints) MemLocation { return h.preferred })
	preloaded := place(func(h *hints) MemLocation { return h.preloaded })
	switch attribute {
	case MemRangeAttributeReadMostly:
		if all(func(h *hints) bool { return h.readMostly }) {
			return []int32{1}
		}
		return []int32{0}
	case MemRangeAttributePreferredLocation:
		return []int32{preferred.device()}
	case MemRangeAttributeLastPrefetchLocation:
		return []int32{preloaded.device()}
	case MemRangeAttributePreferredLocationType:
		return []int32{int32(preferred.Type)}
	case MemRangeAttributePreferredLocationId:
		return []int32{preferred.ID}
	case MemRangeAttributeLastPrefetchLocationType:
		return []int32{int32(preloaded.Type)}
	case MemRangeAttributeLastPrefetchLocationId:
		return []int32{preloaded.ID}
	}
	var by []int32
	if all(func(h *hints) bool { return h.onHost }) {
		by = append(by, deviceCPU)
	}
	if all(func(h *hints) bool { return h.onDevice }) {
		by = append(by, 0)
	}
	for len(by) < n {
		by = append(by, deviceInvalid)
	}
	return by[:n]
}

// MemRangeGetAttributes is cuMemRangeGetAttributes.
func (c *Call) MemRangeGetAttributes(out *Pointer, sizes *uint64, attributes *uint32, count, p, n uint64) Result {
	if out == nil || sizes == nil || attributes == nil || count == 0 || count > 256 {
		return ErrorInvalidValue
	}
	to, bytes := array(out, count), array(sizes, count)
	for i, a := range array(attributes, count) {
		if r := c.MemRangeGetAttribute(to[i], bytes[i], a, p, n); r != Success {
			return r
		}
	}
	return Success
}

// StreamAttachMemAsync is cuStreamAttachMemAsync. Streams and the program may use the memory at any
// time, so that nothing depends on it.
func (c *Call) StreamAttachMemAsync(h Handle, p, n uint64, flags uint32) Result {
	const global, host, single = 1, 2, 4
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	m := c.d.host.managedAt(p)
	if m == nil || p != m.base || n != 0 && n != m.bytes && n != m.asked || flags != global && flags != host && flags != single ||
		flags == single && s.handle == 0 {
		return ErrorInvalidValue
	}
	return Success
}
