package executor

import (
	"errors"
	"fmt"

	"vgpud/gpu"
)

// places are the addresses that the executor chooses for the memory and modules of a context that may
// move to another GPU, where all of it has to be at the same addresses again. Of the addresses that
// [gpu.Placer] offers, the guest may choose from the first half, allocations are in the third quarter,
// and modules in the last, each in a slot of its own.
type places struct {
	movable gpu.Movable // nil: the device chooses, and the context stays where it is
	grain   uint64
	guest   uint64 // bytes of the guest's part
	base    gpu.Ptr
	end     gpu.Ptr // of allocations; modules are behind it
	slot    uint64  // bytes of a module's slot
	next    gpu.Ptr // where the search for room begins
}

// newPlaces returns the places of a context, if its device has what a move needs.
func newPlaces(c gpu.Context) (p places) {
	m, ok := c.(gpu.Movable)
	if !ok {
		return p
	}
	base, bytes, grain, err := m.Places()
	if err != nil || grain == 0 || bytes < 4*maxModules*grain {
		return p
	}
	quarter := bytes / 4 / grain * grain
	p = places{movable: m, grain: grain, guest: 2 * quarter, base: base + gpu.Ptr(2*quarter), slot: quarter / maxModules / grain * grain}
	p.end, p.next = p.base+gpu.Ptr(quarter), p.base
	return p
}

// find returns an address for size bytes beside the allocations of l.
func (p *places) find(l allocations, size uint64) (gpu.Ptr, error) {
	if size <= uint64(p.end-p.base) {
		for _, at := range [2]gpu.Ptr{p.next, p.base} {
			i, _ := l.search(at)
			if i > 0 {
				at = max(at, p.behind(l[i-1]))
			}
			for ; i < len(l) && l[i].base-at < gpu.Ptr(size); i++ {
				at = max(at, p.behind(l[i]))
			}
			if at <= p.end && size <= uint64(p.end-at) {
				return at, nil
			}
		}
	}
	return 0, fmt.Errorf("no address is left for %d bytes: %w", size, gpu.ErrOutOfMemory)
}

// behind returns the first address behind an allocation.
func (p *places) behind(a allocation) gpu.Ptr {
	return a.base + gpu.Ptr((a.size+p.grain-1)/p.grain*p.grain)
}

// alloc allocates memory at an address of the executor's choice.
func (x *Executor) alloc(size uint64) (gpu.Ptr, error) {
	p := &x.places
	if p.movable == nil {
		return x.o.Context.Alloc(size)
	}
	at, err := p.find(x.memory, size)
	if err == nil {
		err = p.movable.AllocAt(at, size)
	}
	if err != nil {
		return 0, err
	}
	p.next = p.behind(allocation{at, size})
	return at, nil
}

// load loads a module. Its variables are at an address of the executor's choice, or at is 0.
func (x *Executor) load(image []byte) (m gpu.Module, at gpu.Ptr, err error) {
	if x.places.movable != nil {
		at = x.freeSlot()
		m, err = x.places.movable.LoadModuleAt(image, at)
		if err == nil {
			if v, ok := m.(gpu.Variables); ok {
				if _, n := v.Variables(); n <= x.places.slot {
					return m, at, nil
				}
			}
			err = errors.Join(m.Unload(), gpu.ErrInvalidPtr)
		}
		if !errors.Is(err, gpu.ErrInvalidPtr) {
			return nil, 0, err
		}
	}
	m, err = x.o.Context.LoadModule(image)
	return m, 0, err
}

// freeSlot returns the address of a module's slot in which there is none. There are as many slots as
// modules.
func (x *Executor) freeSlot() gpu.Ptr {
	taken := make(map[gpu.Ptr]bool, len(x.modules.byID))
	for _, m := range x.modules.byID {
		taken[m.at] = true
	}
	at := x.places.end
	for taken[at] {
		at += gpu.Ptr(x.places.slot)
	}
	return at
}
