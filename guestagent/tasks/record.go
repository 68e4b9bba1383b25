package tasks

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrBegin means that a call was not recorded and changed nothing: the task has to begin first.
	ErrBegin = errors.New("tasks: not recorded, the task has to begin")
	// ErrMemory means that the program may not have that much GPU memory.
	ErrMemory = errors.New("tasks: more GPU memory than the program may have")
	// ErrAddresses means that a context can't have memory at the record's addresses. Another context, on
	// the same GPU or another, may.
	ErrAddresses = errors.New("tasks: the GPU has other addresses")
)

// Bounds of a record.
const (
	// MaxData is the most bytes of the program's memory that a record copies.
	MaxData = 64 << 20
	// MaxObjects is the most objects, and maxPieces the most parts of objects with different contents.
	MaxObjects = 1 << 14
	maxPieces  = 1 << 14
)

// Align is what addresses and sizes of objects are multiples of. It is a multiple of 4, which
// patterns rely on.
const Align = 512

// skip is how far the record moves on where an address is not usable.
const skip = 2 << 20

// mostConflicts is how often it does so for one object.
const mostConflicts = 16

// Options configure a Record.
type Options struct {
	// Base and Bytes are the addresses that objects may have, and Grain is what addresses of regions
	// are multiples of, as in driver.AddressRange. Base is a multiple of Grain.
	Base, Bytes, Grain uint64
	// Limit is the GPU memory that the program may have, in bytes. An object that brings the sum close
	// to it is left to the device, which alone knows what else it needs.
	Limit uint64
	// Usable reports whether an object may have the addresses. nil means that all may.
	Usable func(base, bytes uint64) bool
}

// Region is GPU memory with one address for all GPUs, which is allocated at once.
type Region struct {
	Base, Bytes uint64
	// Objects is how many objects lie in it.
	Objects int

	used uint64 // bytes at the beginning that objects have had
}

// object is memory that the program allocated.
type object struct {
	base, bytes uint64
	region      *Region
	pieces      []piece // what is not zero, by offset
}

// Record is what a program has done with GPU memory so far.
type Record struct {
	o       Options
	regions []*Region // by address, which is also the order in which they were made
	objects []*object // by address
	open    *Region   // that the next small object goes to, or nil
	next    uint64    // where the next region may begin
	bytes   uint64    // of all regions
	data    uint64    // bytes copied from the program
	pieces  int
}

// New returns an empty record. Preconditions: o.Grain is a power of two.
func New(o Options) *Record {
	o.Grain = max(o.Grain, Align)
	return &Record{o: o, next: o.Base}
}

// Bytes returns the GPU memory that the record's regions take.
func (r *Record) Bytes() uint64 { return r.bytes }

// Objects returns how many objects there are.
func (r *Record) Objects() int { return len(r.objects) }

// roundUp returns n rounded up to a multiple of unit, a power of two, or 0 if that overflows.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// Alloc records an allocation of n zeroed bytes and returns their address. The error is ErrMemory if
// the program may not have as much, or ErrBegin.
func (r *Record) Alloc(n uint64) (uint64, error) {
	size := roundUp(n, r.o.Grain)
	small := n <= r.o.Grain/2
	if small {
		size = roundUp(n, Align)
	}
	switch {
	case n == 0:
		return 0, fmt.Errorf("an object of no bytes: %w", ErrBegin)
	case size == 0 || size > r.o.Limit-min(r.bytes, r.o.Limit):
		return 0, fmt.Errorf("%d bytes beside %d of %d: %w", n, r.bytes, r.o.Limit, ErrMemory)
	case r.bytes+size > r.o.Limit-Margin(r.o.Limit):
		return 0, fmt.Errorf("%d bytes beside %d, close to %d: %w", n, r.bytes, r.o.Limit, ErrBegin)
	case len(r.objects) == MaxObjects:
		return 0, fmt.Errorf("%d objects: %w", len(r.objects)+1, ErrBegin)
	}
	for range mostConflicts {
		g, err := r.room(size, small)
		if err != nil {
			return 0, err
		}
		base := g.Base + g.used
		if r.o.Usable != nil && !r.o.Usable(base, size) {
			r.next = max(r.next, roundUp(base+1, skip))
			r.open = nil
			continue
		}
		r.take(g, size)
		return base, nil
	}
	return 0, fmt.Errorf("no addresses for %d bytes: %w", n, ErrBegin)
}

// Margin returns how much of a limit the device may need beside objects: stacks, heaps, code. Objects
// that would have some of it are not recorded.
func Margin(limit uint64) uint64 { return min(limit, 32<<20+limit/16) }

// room returns a region, new or old, in which size bytes are unused.
func (r *Record) room(size uint64, small bool) (*Region, error) {
	if g := r.open; small && g != nil && g.Bytes-g.used >= size {
		return g, nil
	}
	g := &Region{Base: roundUp(r.next, r.o.Grain), Bytes: roundUp(size, r.o.Grain)}
	if g.Base < r.o.Base || g.Base-r.o.Base > r.o.Bytes || g.Bytes > r.o.Bytes-(g.Base-r.o.Base) {
		return nil, fmt.Errorf("%d bytes of addresses: %w", size, ErrBegin)
	}
	return g, nil
}

// take adds an object to a region, at the first byte that no object has had.
func (r *Record) take(g *Region, size uint64) {
	if g.used == 0 && g != r.open {
		r.regions = append(r.regions, g)
		r.bytes += g.Bytes
		r.next = g.Base + g.Bytes
		if size <= r.o.Grain/2 {
			r.open = g
		}
	}
	// Regions are made in the order of addresses, but the open one may not be the last.
	o := &object{base: g.Base + g.used, bytes: size, region: g}
	i, _ := r.search(o.base)
	r.objects = slices.Insert(r.objects, i, o)
	g.used += size
	g.Objects++
}

// search returns the index of the first object whose address is at least base, and whether it is base.
func (r *Record) search(base uint64) (int, bool) {
	return slices.BinarySearchFunc(r.objects, base, func(o *object, base uint64) int {
		switch {
		case o.base < base:
			return -1
		case o.base > base:
			return 1
		}
		return 0
	})
}

// find returns the object that all of n bytes at p lie in, or nil.
func (r *Record) find(p, n uint64) *object {
	i, exact := r.search(p)
	if !exact {
		i--
	}
	if i < 0 {
		return nil
	}
	o := r.objects[i]
	if p-o.base > o.bytes || n > o.bytes-(p-o.base) {
		return nil
	}
	return o
}

// Free forgets the object at an address, with its contents. It returns the object's region, whose
// Objects is 0 if nothing is left in it, or nil if there is no object.
func (r *Record) Free(base uint64) *Region {
	i, ok := r.search(base)
	if !ok {
		return nil
	}
	o := r.objects[i]
	r.clear(o, 0, o.bytes)
	r.objects = slices.Delete(r.objects, i, i+1)
	g := o.region
	if g.Objects--; g.Objects > 0 {
		return g
	}
	r.bytes -= g.Bytes
	r.regions = slices.DeleteFunc(r.regions, func(other *Region) bool { return other == g })
	if r.open == g {
		r.open = nil
	}
	if r.next == g.Base+g.Bytes { // its addresses may serve again
		r.next = g.Base
	}
	return g
}

// Forget forgets what is in the objects, once the GPU has it. It is called after [Replay]: from then on
// only [Record.Free] is.
func (r *Record) Forget() {
	for _, o := range r.objects {
		o.pieces = nil
	}
	r.pieces, r.data = 0, 0
}

// Regions returns the memory that the task needs, by address.
func (r *Record) Regions() []Region {
	all := make([]Region, len(r.regions))
	for i, g := range r.regions {
		all[i] = *g
	}
	return all
}
