package simt

import (
	"encoding/binary"

	"vgpud/gpu"
)

// frame is one activation of a device function, by one or several paths. Lanes that called from the
// same place share it, so that they can reconverge inside.
type frame struct {
	ret      int32  // where to continue in the caller
	sp       uint32 // start of its local memory
	mask     uint32 // lanes inside it, or in its callees
	depth    int
	parent   *frame
	children *frame
	sibling  *frame
}

// enter gives the running path a frame for a call, with its local memory at sp.
func (w *warp) enter(ret int32, sp uint32) *frame {
	list := &w.calls
	depth := 1
	if w.frame != nil {
		list = &w.frame.children
		depth = w.frame.depth + 1
	}
	for f := *list; f != nil; f = f.sibling {
		if f.ret == ret {
			f.mask |= w.mask
			return f
		}
	}
	f := w.freeFrame
	if f == nil {
		f = new(frame)
	} else {
		w.freeFrame = f.sibling
	}
	*f = frame{ret: ret, sp: sp, mask: w.mask, depth: depth, parent: w.frame, sibling: *list}
	*list = f
	return f
}

// quit removes lanes from a frame, and frees it after the last.
func (w *warp) quit(f *frame, gone uint32) {
	if f.mask &^= gone; f.mask != 0 {
		return
	}
	list := &w.calls
	if f.parent != nil {
		list = &f.parent.children
	}
	for *list != f {
		list = &(*list).sibling
	}
	*list = f.sibling
	*f = frame{sibling: w.freeFrame}
	w.freeFrame = f
}

// base returns the start of an activation's local memory. The kernel's own is at 0.
func (f *frame) base() uint32 {
	if f == nil {
		return 0
	}
	return f.sp
}

// callSite is a compiled call.
type callSite struct {
	callee  *function // nil for a call through a pointer
	args    []passed
	returns []passed
	frame   uint32  // size of the caller's frame in bytes, including saved registers
	saves   []saved // the caller's registers, if the callee may call the caller again
}

// passed is an argument or result in the caller.
type passed struct {
	reg  operand // in a register if its class is set
	at   uint32  // in the caller's frame
	size uint32
	none bool // the result is unused
}

// saved is a register that is saved in the frame during a call.
type saved struct {
	reg operand
	at  uint32
}

// maxDepth limits the depth of calls that use no local memory.
const maxDepth = 1024

// doCall enters a function. For a call through a pointer, a is a register with the function's
// address.
func doCall(w *warp, in *inst) {
	site := in.x.call
	callee := site.callee
	mask := w.mask
	if callee == nil {
		a := &w.r64[in.a]
		target := a[first(mask)]
		callee = w.prog.entries[target]
		if callee == nil || len(callee.params) != len(site.args) || len(callee.returns) != len(site.returns) {
			w.raise(gpu.FaultInstruction, in, first(mask))
			return
		}
		for m := mask; m != 0; m &= m - 1 {
			if i := first(m); a[i] != target {
				mask &^= 1 << i
			}
		}
		if mask != w.mask {
			// The other lanes call separately; all reconverge after the call.
			w.part(w.mask&^mask, w.pc, w.pc, w.pc+1)
		}
	}
	sp := w.sp + site.frame
	if int(sp)+int(callee.frame.size) > w.localBytes || w.frame != nil && w.frame.depth >= maxDepth {
		w.raise(gpu.FaultStack, in, first(w.mask))
		return
	}
	for i := range site.args {
		from, to := &site.args[i], &callee.params[i]
		w.transfer(to.reg, int(sp+to.at), from.reg, int(w.sp+from.at), int(min(from.size, to.size)))
	}
	for i := range site.saves {
		s := &site.saves[i]
		w.transfer(operand{}, int(w.sp+s.at), s.reg, 0, s.bytes())
	}
	w.frame = w.enter(w.pc+1, sp)
	w.sp = sp
	w.pc = callee.entry
}

func (s *saved) bytes() int {
	if s.reg.class == reg64 {
		return 8
	}
	return 4
}

// ret leaves a function.
func ret(w *warp, in *inst) {
	f := w.frame
	site := w.prog.code[f.ret-1].x.call
	callee := in.x.fn
	up, back := f.parent, f.ret
	sp := up.base()
	for i := range site.saves {
		s := &site.saves[i]
		w.transfer(s.reg, 0, operand{}, int(sp+s.at), s.bytes())
	}
	for i := range site.returns {
		to, from := &site.returns[i], &callee.returns[i]
		if !to.none {
			w.transfer(to.reg, int(sp+to.at), from.reg, int(w.sp+from.at), int(min(from.size, to.size)))
		}
	}
	w.quit(f, w.mask)
	w.frame, w.sp, w.pc = up, sp, back
}

// transfer copies a value of every lane: between registers, or to and from the lanes' local memory.
func (w *warp) transfer(to operand, toAt int, from operand, fromAt int, size int) {
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		base := i * w.localBytes
		switch {
		case to.class == noReg && from.class == noReg:
			copy(w.local[base+toAt:][:size], w.local[base+fromAt:][:size])
		case from.class == noReg:
			v := fetch(w.local[base+fromAt:], size, false)
			if to.class == predReg {
				w.setPred(to.index, 1<<i, -uint32(v&1))
			} else {
				w.setLane(to, i, v)
			}
		default:
			var v uint64
			if from.class == predReg {
				v = uint64(w.pred[from.index] >> i & 1)
			} else {
				v = w.lane(from, i)
			}
			switch {
			case to.class == predReg:
				w.setPred(to.index, 1<<i, -uint32(v&1))
			case to.class != noReg:
				w.setLane(to, i, v)
			default:
				put(w.local[base+toAt:], size, v)
			}
		}
	}
}

// put writes a little-endian integer of size bytes.
func put(p []byte, size int, v uint64) {
	switch size {
	case 1:
		p[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(v))
	default:
		binary.LittleEndian.PutUint64(p, v)
	}
}
