package simt

import (
	"encoding/binary"

	"vgpud/gpu"
	"vgpud/ptx"
)

// asyncCopy compiles cp.async. A copy is done when it is issued, so groups and waits have no
// effect.
func asyncCopy(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("async") || m.has("reduce") || m.has("tensor") {
		return c.unsupported("this form of cp")
	}
	bulk := m.has("bulk")
	switch {
	case m.any("commit_group", "wait_group", "wait_all", "prefetch") != "":
		return nothing(c, in, m)
	case bulk:
		return bulkCopy(c, in, m)
	case m.has("mbarrier"):
		return copyArrive(c, in, m)
	}
	m.skip("ca", "cg", "shared", "shared::cta", "global")
	m.skip(ordering...)
	if err := c.arity(in, 3, 5); err != nil {
		return err
	}
	dst, err := c.pointer(&in.Operands[0], ptx.SharedSpace)
	if err != nil {
		return err
	}
	src, err := c.pointer(&in.Operands[1], ptx.GlobalSpace)
	if err != nil {
		return err
	}
	size, err := c.constantOf(in, 2)
	if err != nil {
		return err
	}
	if size != 4 && size != 8 && size != 16 {
		return c.invalid("a copy of %d bytes", size)
	}
	bytes := c.constant(reg32, size)
	ignore := c.always()
	ignore.not = true
	if len(in.Operands) > 3 {
		o := &in.Operands[3]
		switch {
		case o.Kind == ptx.KindReg && o.Sym != nil && o.Sym.Type == ptx.Pred1:
			if ignore, err = c.pred(o); err != nil {
				return err
			}
		case o.Kind == ptx.KindReg && o.Sym != nil && o.Sym.Type.Bits() == 64: // a cache policy
		default:
			if bytes, err = c.src(o, ptx.B32); err != nil {
				return err
			}
		}
	}
	from := &access{size: uint32(size), space: ptx.GlobalSpace}
	to := &access{size: uint32(size), space: ptx.SharedSpace, write: true}
	not := -bit(ignore.not)
	c.emit(inst{op: func(w *warp, in *inst) {
		skip := w.pred[ignore.index] ^ not
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d, ok := w.at(in, to, i, w.lane(dst.base, i)+dst.offset)
			if !ok {
				return
			}
			n := min(uint64(w.r32[bytes.index][i]), size)
			if skip>>i&1 != 0 {
				n = 0
			}
			if n > 0 {
				s, ok := w.at(in, from, i, w.lane(src.base, i)+src.offset)
				if !ok {
					return
				}
				copy(d, s[:n])
			}
			clear(d[n:])
		}
		w.chargeSectors(uint32(popcount(w.mask)) * uint32(size) / 32)
	}, run: 1}, c.costs().Memory)
	return nil
}

// at returns the bytes of one lane's access, or raises its fault.
func (w *warp) at(in *inst, m *access, lane int, addr uint64) ([]byte, bool) {
	data, off, ok := w.shared, int(addr), addr < uint64(len(w.shared))
	if m.space != ptx.SharedSpace {
		data, off, ok = w.locate(m, lane, addr, m.space == ptx.NoSpace)
	}
	kind := gpu.FaultAddress
	if ok && addr&uint64(m.size-1) != 0 {
		kind, ok = gpu.FaultMisaligned, false
	}
	if !ok || off+int(m.size) > len(data) {
		w.faultAt(in, m, kind, lane, addr)
		return nil, false
	}
	return data[off:][:m.size], true
}

// copyArrive compiles cp.async.mbarrier.arrive. The copies before it are done, so it arrives at
// once. Without .noinc it first adds the arrival that it then performs, so nothing changes.
func copyArrive(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("arrive") {
		return c.unsupported("this form of cp")
	}
	if !m.has("noinc") {
		return nothing(c, in, m)
	}
	space := m.space()
	if err := c.arity(in, 1, 1); err != nil || m.typ() != ptx.B64 {
		return c.invalid("no mbarrier")
	}
	p, err := c.pointer(&in.Operands[0], space)
	if err != nil {
		return err
	}
	c.memory(p, operand{}, 8, true, func(w *warp, in *inst, data []byte) {
		for m := w.mask; m != 0; m &= m - 1 {
			p := data[w.off[first(m)]:]
			b := readMbarrier(binary.LittleEndian.Uint64(p))
			b.pending--
			binary.LittleEndian.PutUint64(p, b.settle().bits())
		}
	})
	return nil
}

// bulkCopy compiles cp.async.bulk between global and shared memory. A copy into shared memory
// reports to an mbarrier, a copy out of it to a group.
func bulkCopy(c *compiler, in *ptx.Instr, m *mods) error {
	to, from := m.space(), m.space()
	report := m.has("mbarrier::complete_tx::bytes")
	m.skip("bulk_group")
	m.skip(ordering...)
	if !(to == ptx.SharedSpace && from == ptx.GlobalSpace && report) && !(to == ptx.GlobalSpace && from == ptx.SharedSpace && !report) {
		return c.unsupported("this form of cp")
	}
	if err := c.arity(in, 3, 5); err != nil {
		return err
	}
	dst, err := c.pointer(&in.Operands[0], to)
	if err != nil {
		return err
	}
	src, err := c.pointer(&in.Operands[1], from)
	if err != nil {
		return err
	}
	size, err := c.src(&in.Operands[2], ptx.U32)
	if err != nil {
		return err
	}
	var barrier place
	if report {
		if err := c.arity(in, 4, 5); err != nil {
			return err
		}
		if barrier, err = c.pointer(&in.Operands[3], ptx.SharedSpace); err != nil {
			return err
		}
	}
	c.emit(inst{op: func(w *warp, in *inst) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			n := w.r32[size.index][i]
			s, ok := w.bulkRange(in, src, i, n, false)
			if !ok {
				return
			}
			d, ok := w.bulkRange(in, dst, i, n, true)
			if !ok {
				return
			}
			copy(d, s)
			w.chargeSectors(n / sectorBytes)
			if !report {
				continue
			}
			p, ok := w.at(in, &access{size: 8, space: ptx.SharedSpace, write: true}, i, w.lane(barrier.base, i)+barrier.offset)
			if !ok {
				return
			}
			b := readMbarrier(binary.LittleEndian.Uint64(p))
			b.tx -= int64(n)
			binary.LittleEndian.PutUint64(p, b.settle().bits())
		}
	}, run: 1}, c.costs().Memory)
	return nil
}

// bulkRange returns n bytes of global or shared memory for one lane, or raises a fault. The ends of
// a bulk copy must be multiples of 16 bytes.
func (w *warp) bulkRange(in *inst, p place, lane int, n uint32, write bool) ([]byte, bool) {
	addr := w.lane(p.base, lane) + p.offset
	m := &access{size: n, space: p.space, write: write}
	if addr%16 != 0 || n%16 != 0 {
		w.faultAt(in, m, gpu.FaultMisaligned, lane, addr)
		return nil, false
	}
	if p.space == ptx.SharedSpace {
		if size := uint64(len(w.shared)); addr <= size && uint64(n) <= size-addr {
			return w.shared[addr:][:n], true
		}
	} else if b, ok := w.grid.launch.Memory.Bytes(addr, uint64(n)); ok && !(write && w.grid.launch.Memory.find(addr).readOnly) {
		return b, true
	}
	w.faultAt(in, m, gpu.FaultAddress, lane, addr)
	return nil, false
}
