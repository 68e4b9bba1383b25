package simt

import (
	"encoding/binary"
)

// Faster code for the most frequent accesses: 32-bit and 64-bit accesses of full warps, in global
// memory if the lanes' addresses are adjacent, or are so in each half of the warp, or are all the
// same, and anywhere in shared memory. Others use the general code.

// adjacent reports whether the addresses of 16 lanes are consecutive with a distance of step bytes.
func adjacent(a *[lanes / 2]uint64, step uint64) bool {
	base := a[0]
	var differ uint64
	for i := uint64(0); i < lanes/2; i += 4 {
		differ |= (a[i] - base) ^ i*step
		differ |= (a[i+1] - base) ^ (i+1)*step
		differ |= (a[i+2] - base) ^ (i+2)*step
		differ |= (a[i+3] - base) ^ (i+3)*step
	}
	return differ == 0
}

// same reports whether all lanes have the same address.
func same(a *[lanes]uint64) bool {
	base := a[0]
	var differ uint64
	for i := 0; i < lanes; i += 4 {
		differ |= a[i] ^ base | a[i+1] ^ base | a[i+2] ^ base | a[i+3] ^ base
	}
	return differ == 0
}

// rows returns the bytes of a full warp's accesses of size bytes each if each half of the warp
// accesses adjacent ones, as in blocks of 16 by 16 threads, and charges for them. If all lanes'
// accesses are adjacent, second is empty. It returns nil if the accesses lie otherwise.
func (w *warp) rows(in *inst, size uint64) (r, second []byte) {
	if w.mask != full || !littleEndian {
		return nil, nil
	}
	const half = lanes / 2
	a := &w.r64[in.a]
	if a[1]-a[0] != size || !adjacent((*[half]uint64)(a[:]), size) || !adjacent((*[half]uint64)(a[half:]), size) {
		return nil, nil
	}
	m := in.x.mem
	at, at2, n := a[0]+in.imm, a[half]+in.imm, half*size
	if (at|at2)&(size-1) != 0 {
		return nil, nil
	}
	if at2 == at+n {
		if r = w.bytesAt(m, at, 2*n); r != nil {
			w.chargeSectors(sectors(at, 2*n))
		}
		return r, nil
	}
	if r, second = w.bytesAt(m, at, n), w.bytesAt(m, at2, n); r == nil || second == nil {
		return nil, nil
	}
	total := sectors(at, n) + sectors(at2, n)
	if (at+n-1)/sectorBytes == at2/sectorBytes {
		total-- // the lanes on both sides of the middle are in the same sector
	}
	w.chargeSectors(total)
	return r, second
}

// single returns the bytes that all lanes of a full warp load, and charges for them. It returns nil
// if the addresses differ.
func (w *warp) single(in *inst, size uint64) []byte {
	a := &w.r64[in.a]
	at := a[0] + in.imm
	if w.mask != full || a[0] != a[1] || a[0] != a[lanes-1] || !same(a) || at&(size-1) != 0 {
		return nil
	}
	v := w.bytesAt(in.x.mem, at, size)
	if v != nil {
		w.chargeSectors(1)
	}
	return v
}

// bytesAt returns the n bytes at an address that an access may read or write, or nil if they are not
// in one mapping.
func (w *warp) bytesAt(m *access, at, n uint64) []byte {
	c := &w.grid.mappings[m.site]
	off := at - c.lo
	if off >= uint64(len(c.data)) {
		if !w.findMapping(c, at) {
			return nil
		}
		off = at - c.lo
	}
	if uint64(len(c.data))-off < n || c.ro && m.write {
		return nil
	}
	return c.data[off:][:n]
}

const sectorBytes = 32

// sectors returns the number of sectors that n bytes at an address are in.
func sectors(at, n uint64) uint32 {
	return uint32((at%sectorBytes + n + sectorBytes - 1) / sectorBytes)
}

func loadGlobal32(w *warp, in *inst) {
	if r, second := w.rows(in, 4); r != nil {
		d := bytes32(&w.r32[in.d])
		copy(d[copy(d, r):], second)
		return
	}
	if v := w.single(in, 4); v != nil {
		fill(&w.r32[in.d], full, binary.LittleEndian.Uint32(v))
		return
	}
	in.x.mem.resolve(w, in)
}

func storeGlobal32(w *warp, in *inst) {
	if r, second := w.rows(in, 4); r != nil {
		d := bytes32(&w.r32[in.d])
		copy(second, d[copy(r, d):])
		return
	}
	in.x.mem.resolve(w, in)
}

func loadGlobal64(w *warp, in *inst) {
	if r, second := w.rows(in, 8); r != nil {
		d := bytes64(&w.r64[in.d])
		copy(d[copy(d, r):], second)
		return
	}
	if v := w.single(in, 8); v != nil {
		fill(&w.r64[in.d], full, binary.LittleEndian.Uint64(v))
		return
	}
	in.x.mem.resolve(w, in)
}

func storeGlobal64(w *warp, in *inst) {
	if r, second := w.rows(in, 8); r != nil {
		d := bytes64(&w.r64[in.d])
		copy(second, d[copy(r, d):])
		return
	}
	in.x.mem.resolve(w, in)
}

// loadShared32 and storeShared32 check and transfer in one pass.
func loadShared32(w *warp, in *inst) {
	if w.mask != full {
		shared32(w, in)
		return
	}
	a, s := w.r32[in.a], w.shared // copied, since the result may go to the address register
	d := &w.r32[in.d]
	units := uint64(len(s)) >> 2
	rel := uint32(in.imm)
	for i := range d {
		off := uint64(a[i] + rel)
		if !inRange(off, 2, units) {
			w.badShared(in, i, off)
			return
		}
		d[i] = binary.LittleEndian.Uint32(s[off:])
	}
}

func storeShared32(w *warp, in *inst) {
	if w.mask != full {
		shared32(w, in)
		return
	}
	a, d, s := &w.r32[in.a], &w.r32[in.d], w.shared
	units := uint64(len(s)) >> 2
	rel := uint32(in.imm)
	for i := range d {
		off := uint64(a[i] + rel)
		if !inRange(off, 2, units) {
			w.badShared(in, i, off)
			return
		}
		binary.LittleEndian.PutUint32(s[off:], d[i])
	}
}

func (w *warp) badShared(in *inst, lane int, off uint64) {
	if off%4 != 0 && off+4 <= uint64(len(w.shared)) {
		w.misaligned(in, lane, off)
		return
	}
	w.badAddress(in, lane, off)
}

// fast returns the faster operation for an access, if there is one. Generic addresses have those of
// global memory, which no mapping exceeds.
func fast(p place, elems []element, write bool) opFunc {
	if len(elems) != 1 {
		return nil
	}
	e := elems[0]
	word := e.size == 4 && e.reg.class == reg32
	long := e.size == 8 && e.reg.class == reg64
	switch {
	case p.kind == globalPlace && word && !write:
		return loadGlobal32
	case p.kind == globalPlace && word:
		return storeGlobal32
	case p.kind == globalPlace && long && !write:
		return loadGlobal64
	case p.kind == globalPlace && long:
		return storeGlobal64
	case p.kind == sharedPlace && word && !write:
		return loadShared32
	case p.kind == sharedPlace && word:
		return storeShared32
	}
	return nil
}
