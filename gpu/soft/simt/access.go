package simt

import (
	"math/bits"

	"vgpud/gpu"
	"vgpud/ptx"
)

// A memory operation has two halves. Resolving converts the lanes' addresses to offsets in one
// slice of bytes, checked for bounds and alignment. Moving transfers between those bytes and
// registers. If the lanes' addresses are in several slices (allocations, windows of the generic
// space), the operation is carried out lane by lane.

// mover transfers between data, at the offsets in w.off, and in's registers for the lanes of
// w.mask.
type mover func(w *warp, in *inst, data []byte)

// access describes a memory operation to the resolvers. It is stored in extra.
type access struct {
	size  uint32 // bytes per lane, a power of two
	space ptx.Space
	write bool
	site  uint32
	move  mover
	// resolve is the general code of an operation that has a faster one.
	resolve opFunc
}

// inRange reports whether a lane's access of size bytes at off is aligned and within n bytes.
// Rotating right moves misaligned bits to the top, so that one comparison detects both faults.
func inRange(off uint64, shift uint, units uint64) bool {
	return bits.RotateLeft64(off, -int(shift)) < units
}

// global64 resolves addresses in global memory, from 64-bit registers.
func global64(w *warp, in *inst) {
	x := in.x
	a := vec[uint64](w, in.a)
	c := &w.grid.mappings[x.mem.site]
	lane := first(w.mask)
	base := a[lane] + in.imm
	if base-c.lo >= uint64(len(c.data)) && !w.findMapping(c, base) {
		w.badAddress(in, lane, base)
		return
	}
	if c.ro && x.mem.write {
		w.badAddress(in, lane, base)
		return
	}
	good, sectors := w.globalOffsets(a, in.imm, c, x.mem.size)
	if x.mem.size > 16 {
		sectors *= x.mem.size / 32
	}
	w.chargeSectors(sectors)
	if good {
		x.mem.move(w, in, c.data)
		return
	}
	w.eachLane(in, false)
}

// globalOffsets sets w.off to the lanes' offsets in a mapping. It reports whether all are aligned and
// within the mapping, and how many sectors they are in.
func (w *warp) globalOffsets(a *[lanes]uint64, imm uint64, c *cachedMapping, size uint32) (good bool, sectors uint32) {
	shift := bits.TrailingZeros32(size)
	rel := imm - c.lo
	off := &w.off
	last, most := ^uint64(0), uint64(0)
	if w.mask == full {
		for i := range a {
			o := a[i] + rel
			most = max(most, bits.RotateLeft64(o, -shift))
			off[i] = int(o)
			s := (a[i] + imm) >> 5
			sectors += bit(s != last)
			last = s
		}
	} else {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			o := a[i] + rel
			most = max(most, bits.RotateLeft64(o, -shift))
			off[i] = int(o)
			s := (a[i] + imm) >> 5
			sectors += bit(s != last)
			last = s
		}
	}
	return most < uint64(len(c.data))>>shift, sectors
}

// findMapping looks up an address and caches its mapping.
func (w *warp) findMapping(c *cachedMapping, addr uint64) bool {
	s := w.grid.launch.Memory.find(addr)
	if s == nil {
		return false
	}
	*c = cachedMapping{lo: s.lo, data: s.data, ro: s.readOnly}
	return true
}

// chargeSectors charges for sectors of global memory.
func (w *warp) chargeSectors(n uint32) {
	w.counts.Cycles += uint64(n) * uint64(w.grid.costs.Sector)
	w.counts.GlobalBytes += uint64(n) * 32
}

// eachLane carries out an access lane by lane, if the lanes' addresses are in different slices or
// one is invalid.
func (w *warp) eachLane(in *inst, generic bool) {
	m := w.mask
	a := vec[uint64](w, in.a)
	for l := m; l != 0; l &= l - 1 {
		i := first(l)
		addr := a[i] + in.imm
		data, off, ok := w.locate(in.x.mem, i, addr, generic)
		if !ok || off+int(in.x.mem.size) > len(data) {
			w.badAddress(in, i, addr)
			break
		}
		if addr&uint64(in.x.mem.size-1) != 0 {
			w.misaligned(in, i, addr)
			break
		}
		w.off[i] = off
		w.mask = 1 << i
		in.x.mem.move(w, in, data)
	}
	w.mask = m
}

// locate finds the bytes at one lane's address.
func (w *warp) locate(m *access, lane int, addr uint64, generic bool) (data []byte, off int, ok bool) {
	if generic && addr >= GlobalLimit {
		off := addr & (windowSize - 1)
		switch {
		case addr >= sharedWindow && off < uint64(len(w.shared)) && addr < localWindow:
			return w.shared, int(off), true
		case addr >= localWindow && off+uint64(m.size) <= uint64(w.localBytes) && addr < paramWindow:
			return w.local, lane*w.localBytes + int(off), true
		case addr >= paramWindow && off < uint64(len(w.grid.launch.Params)) && addr < codeWindow && !m.write:
			return w.grid.launch.Params, int(off), true
		}
		return nil, 0, false
	}
	s := w.grid.launch.Memory.find(addr)
	if s == nil || s.readOnly && m.write {
		return nil, 0, false
	}
	return s.data, int(addr - s.lo), true
}

// generic64 resolves generic addresses. If all lanes' are in the same window, it does so as an access
// to that window's space does.
func generic64(w *warp, in *inst) {
	a := vec[uint64](w, in.a)
	low, high := ^uint64(0), uint64(0)
	if w.mask == full {
		for i := range a {
			low, high = min(low, a[i]+in.imm), max(high, a[i]+in.imm)
		}
	} else {
		for m := w.mask; m != 0; m &= m - 1 {
			at := a[first(m)] + in.imm
			low, high = min(low, at), max(high, at)
		}
	}
	mem := in.x.mem
	switch {
	case high < GlobalLimit:
		global64(w, in)
	case low >= sharedWindow && high < localWindow && offsetsIn(w, a, in.imm-sharedWindow, mem.size, len(w.shared)):
		mem.move(w, in, w.shared)
	case low >= localWindow && high < paramWindow && offsetsIn(w, a, in.imm-localWindow, mem.size, w.localBytes):
		w.eachLocal()
		mem.move(w, in, w.local)
	default:
		w.eachLane(in, true)
	}
}

// shared32 and shared64 resolve addresses in shared memory.
func shared32(w *warp, in *inst) { resolveShared(w, in, vec[uint32](w, in.a)) }
func shared64(w *warp, in *inst) { resolveShared(w, in, vec[uint64](w, in.a)) }

func resolveShared[T uint32 | uint64](w *warp, in *inst, a *[lanes]T) {
	if !offsetsIn(w, a, T(in.imm), in.x.mem.size, len(w.shared)) {
		w.faultFirst(in, len(w.shared))
		return
	}
	in.x.mem.move(w, in, w.shared)
}

// offsetsIn sets w.off to the lanes' addresses plus rel, and reports whether all are aligned to size
// and within n bytes.
func offsetsIn[T uint32 | uint64](w *warp, a *[lanes]T, rel T, size uint32, n int) bool {
	shift := bits.TrailingZeros32(size)
	off := &w.off
	most := uint64(0)
	if w.mask == full {
		for i := range a {
			o := uint64(a[i] + rel)
			most = max(most, bits.RotateLeft64(o, -shift))
			off[i] = int(o)
		}
	} else {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			o := uint64(a[i] + rel)
			most = max(most, bits.RotateLeft64(o, -shift))
			off[i] = int(o)
		}
	}
	return most < uint64(n)>>shift
}

// local32 and local64 resolve addresses in local memory, of which each lane has its own part.
func local32(w *warp, in *inst) { resolveLocal(w, in, vec[uint32](w, in.a)) }
func local64(w *warp, in *inst) { resolveLocal(w, in, vec[uint64](w, in.a)) }

func resolveLocal[T uint32 | uint64](w *warp, in *inst, a *[lanes]T) {
	if !offsetsIn(w, a, T(in.imm), in.x.mem.size, w.localBytes) {
		w.faultFirst(in, w.localBytes)
		return
	}
	w.eachLocal()
	in.x.mem.move(w, in, w.local)
}

// eachLocal turns w.off from offsets in a lane's local memory into those in the warp's.
func (w *warp) eachLocal() {
	for i := range w.off {
		w.off[i] += i * w.localBytes
	}
}

// frameLocal resolves a variable of the running activation. Its address is a constant offset in the
// activation's local memory.
func frameLocal(w *warp, in *inst) {
	off := int(w.sp) + int(in.imm)
	if off < 0 || off+int(in.x.mem.size) > w.localBytes {
		w.badAddress(in, first(w.mask), uint64(off))
		return
	}
	for i := range w.off {
		w.off[i] = off + i*w.localBytes
	}
	in.x.mem.move(w, in, w.local)
}

// param64 resolves addresses in the kernel's parameters.
func param64(w *warp, in *inst) {
	a := vec[uint64](w, in.a)
	p := w.grid.launch.Params
	shift := uint(bits.TrailingZeros32(in.x.mem.size))
	good := true
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		off := a[i] + in.imm
		good = good && inRange(off, shift, uint64(len(p))>>shift)
		w.off[i] = int(off)
	}
	if !good {
		w.faultFirst(in, len(p))
		return
	}
	in.x.mem.move(w, in, p)
}

// faultFirst raises the fault of the first lane whose offset in w.off is invalid for n bytes.
func (w *warp) faultFirst(in *inst, n int) {
	size := int(in.x.mem.size)
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		if off := w.off[i]; off < 0 || off > n-size {
			w.badAddress(in, i, uint64(off))
			return
		} else if off&(size-1) != 0 {
			w.misaligned(in, i, uint64(off))
			return
		}
	}
}

func (w *warp) badAddress(in *inst, lane int, addr uint64) {
	w.faultAt(in, in.x.mem, gpu.FaultAddress, lane, addr)
}

func (w *warp) misaligned(in *inst, lane int, addr uint64) {
	w.faultAt(in, in.x.mem, gpu.FaultMisaligned, lane, addr)
}

// faultAt raises the fault of a lane's access.
func (w *warp) faultAt(in *inst, m *access, kind gpu.FaultKind, lane int, addr uint64) {
	if w.fault != nil {
		return
	}
	w.raise(kind, in, lane)
	f := w.fault
	f.Address, f.Size, f.Write = addr, m.size, m.write
	f.Space = m.space.String()
	if m.space == ptx.NoSpace {
		f.Space = "generic"
	}
}
