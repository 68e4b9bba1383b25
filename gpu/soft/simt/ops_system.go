package simt

import (
	"math"
	syncatomic "sync/atomic"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// systemMover returns an operation of system scope, which is atomic for the guest's processors, too: they
// share managed and page-locked memory with kernels. Those of 16 bits are as move is.
func systemMover(op string, t ptx.Type, move mover, d, b, third operand) mover {
	switch f32, f64 := atomics32[op][t], atomics64[op][t]; {
	case t == ptx.F32 && op == "add":
		return systemMover32(func(old, b, _ uint32) uint32 {
			return math.Float32bits(arith.AtomAddGlobalF32(math.Float32frombits(old), math.Float32frombits(b)))
		}, d, b, third)
	case t == ptx.F64 && op == "add":
		return systemMover64(func(old, b, _ uint64) uint64 {
			return math.Float64bits(arith.AddF64(math.Float64frombits(old), math.Float64frombits(b)))
		}, d, b, third)
	case f32 != nil:
		return systemMover32(f32, d, b, third)
	case f64 != nil:
		return systemMover64(f64, d, b, third)
	}
	return move
}

func systemMover32(f func(old, b, c uint32) uint32, d, b, third operand) mover {
	return func(w *warp, in *inst, data []byte) {
		w.chargeAtomics()
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := word32(data[w.off[i]:])
			old := syncatomic.LoadUint32(p)
			for !syncatomic.CompareAndSwapUint32(p, old, f(old, w.r32[b.index][i], w.r32[third.index][i])) {
				old = syncatomic.LoadUint32(p)
			}
			if d.class != noReg {
				w.r32[d.index][i] = old
			}
		}
	}
}

func systemMover64(f func(old, b, c uint64) uint64, d, b, third operand) mover {
	return func(w *warp, in *inst, data []byte) {
		w.chargeAtomics()
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := word64(data[w.off[i]:])
			old := syncatomic.LoadUint64(p)
			for !syncatomic.CompareAndSwapUint64(p, old, f(old, w.r64[b.index][i], w.r64[third.index][i])) {
				old = syncatomic.LoadUint64(p)
			}
			if d.class != noReg {
				w.r64[d.index][i] = old
			}
		}
	}
}
