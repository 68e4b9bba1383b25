package simt

// The lifts turn a function on single values into an operation on warps, for the many instructions
// that are too rare for a loop of their own.

func lift1[D, A value](f func(A) D) opFunc {
	return func(w *warp, in *inst) {
		d, a := vec[D](w, in.d), vec[A](w, in.a)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = f(a[i])
		}
	}
}

func lift2[D, A, B value](f func(A, B) D) opFunc {
	return func(w *warp, in *inst) {
		d, a, b := vec[D](w, in.d), vec[A](w, in.a), vec[B](w, in.b)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = f(a[i], b[i])
		}
	}
}

func lift3[D, A, B, C value](f func(A, B, C) D) opFunc {
	return func(w *warp, in *inst) {
		d, a, b, c := vec[D](w, in.d), vec[A](w, in.a), vec[B](w, in.b), vec[C](w, in.c)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

// half is a 16-bit value. It is in a register of the 32-bit bank whose upper half is zero.
type half interface{ uint16 | int16 }

func short1[T half](f func(a T) T) opFunc {
	return lift1(func(a uint32) uint32 { return uint32(uint16(f(T(a)))) })
}

func short2[T half](f func(a, b T) T) opFunc {
	return lift2(func(a, b uint32) uint32 { return uint32(uint16(f(T(a), T(b)))) })
}

func short3[T half](f func(a, b, c T) T) opFunc {
	return lift3(func(a, b, c uint32) uint32 { return uint32(uint16(f(T(a), T(b), T(c)))) })
}

// predicate returns an operation that sets a predicate to the result of a comparison.
func predicate(cmp func(w *warp, in *inst) uint32) opFunc {
	return func(w *warp, in *inst) { w.setPred(in.d, w.mask, cmp(w, in)) }
}

// setPred sets the bits of the lanes of mask to those of v.
func (w *warp) setPred(reg, mask, v uint32) {
	p := &w.pred[reg]
	*p = *p&^mask | v&mask
}
