package arith

// The values that atom and red store, computed from the old value and the operands. Integer add,
// and, or and xor are Go's operators, min and max Go's functions, and exch is the operand. The
// caller makes the whole atomic.

// AtomInc is atom.inc: old+1, or 0 from limit on.
func AtomInc[T Unsigned](old, limit T) T {
	if old >= limit {
		return 0
	}
	return old + 1
}

// AtomDec is atom.dec: old−1, or limit when old is 0 or above limit.
func AtomDec[T Unsigned](old, limit T) T {
	if old == 0 || old > limit {
		return limit
	}
	return old - 1
}

// AtomCas is atom.cas: value where old is compare, else old.
func AtomCas[T Unsigned](old, compare, value T) T {
	if old == compare {
		return value
	}
	return old
}

// AtomAddGlobalF32 is atom.add.f32 in global memory, which flushes subnormals on NVIDIA's GPUs. In
// shared memory it is AddF32; atom.add.f64 is AddF64 and the .noftz forms of half precision are
// Half.Add everywhere.
func AtomAddGlobalF32(old, b float32) float32 { return CanonF32(FlushF32(FlushF32(old) + FlushF32(b))) }
