package simt

import (
	"encoding/binary"
)

// Faster code for the most frequent accesses: 32-bit and 64-bit accesses of full warps, adjacent in
// global memory or anywhere in shared memory. Others use the general code.

// adjacent reports whether the lanes' addresses are consecutive with a distance of step bytes.
func adjacent(a *[lanes]uint64, step uint64) bool {
	base := a[0]
	var differ uint64
	for i := uint64(0); i < lanes; i += 4 {
		differ |= (a[i] - base) ^ i*step
		differ |= (a[i+1] - base) ^ (i+1)*step
		differ |= (a[i+2] - base) ^ (i+2)*step
		differ |= (a[i+3] - base) ^ (i+3)*step
	}
	return differ == 0
}

// row returns the bytes of a full warp's adjacent accesses of size bytes each, and charges for
// them. It returns nil if the accesses are not adjacent.
func (w *warp) row(in *inst, size uint64) []byte {
	if w.mask != full || !littleEndian {
		return nil
	}
	a := &w.r64[in.a]
	m := in.x.mem
	c := &w.grid.mappings[m.site]
	at := a[0] + in.imm
	off := at - c.lo
	if off >= uint64(len(c.data)) {
		if !w.findMapping(c, at) {
			return nil
		}
		off = at - c.lo
	}
	n := lanes * size
	if uint64(len(c.data))-off < n || at&(size-1) != 0 || c.ro && m.write || !adjacent(a, size) {
		return nil
	}
	w.chargeSectors(uint32((at%sectorBytes + n + sectorBytes - 1) / sectorBytes))
	return c.data[off:][:n]
}

const sectorBytes = 32

func loadGlobal32(w *warp, in *inst) {
	if row := w.row(in, 4); row != nil {
		copy(bytes32(&w.r32[in.d]), row)
		return
	}
	global64(w, in)
}

func storeGlobal32(w *warp, in *inst) {
	if row := w.row(in, 4); row != nil {
		copy(row, bytes32(&w.r32[in.d]))
		return
	}
	global64(w, in)
}

func loadGlobal64(w *warp, in *inst) {
	if row := w.row(in, 8); row != nil {
		copy(bytes64(&w.r64[in.d]), row)
		return
	}
	global64(w, in)
}

func storeGlobal64(w *warp, in *inst) {
	if row := w.row(in, 8); row != nil {
		copy(row, bytes64(&w.r64[in.d]))
		return
	}
	global64(w, in)
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

// fast returns the faster operation for an access, if there is one.
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
