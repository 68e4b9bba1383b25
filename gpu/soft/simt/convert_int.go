package simt

import "vgpud/ptx"

// integers returns the operation of a conversion between integer types without saturation, or nil if
// it takes more than 32 bits of its source. classes are those of the result's and the source's
// registers. Programs convert bytes and halves often, so there are no calls for each lane.
func integers(to, from ptx.Type, result, source regClass) opFunc {
	isInteger := func(t ptx.Type) bool { return t.Class() == ptx.Signed || t.Class() == ptx.Unsigned }
	if !isInteger(to) || !isInteger(from) || min(to.Bits(), from.Bits()) > 32 {
		return nil
	}
	// The narrower type says how its value is extended.
	narrow := from
	if to.Bits() <= from.Bits() {
		narrow = to
	}
	shift, signed := 32-narrow.Bits(), narrow.Class() == ptx.Signed
	width := map[regClass]int{reg8: 8, reg16: 16, reg32: 32, reg64: 64}[result]
	if to.Class() == ptx.Unsigned {
		width = min(width, to.Bits())
	}
	keep := ^uint64(0) >> (64 - width)
	switch {
	case result == reg64 && source == reg64:
		return func(w *warp, in *inst) {
			extendLanes(w, vec[uint64](w, in.d), vec[uint64](w, in.a), shift, signed, keep)
		}
	case result == reg64:
		return func(w *warp, in *inst) {
			extendLanes(w, vec[uint64](w, in.d), vec[uint32](w, in.a), shift, signed, keep)
		}
	case source == reg64:
		return func(w *warp, in *inst) {
			extendLanes(w, vec[uint32](w, in.d), vec[uint64](w, in.a), shift, signed, uint32(keep))
		}
	}
	return func(w *warp, in *inst) {
		extendLanes(w, vec[uint32](w, in.d), vec[uint32](w, in.a), shift, signed, uint32(keep))
	}
}

// extendLanes extends the lower 32-shift bits of each source, and keeps some bits of the result.
func extendLanes[D, S uint32 | uint64](w *warp, d *[lanes]D, a *[lanes]S, shift int, signed bool, keep D) {
	shift &= 31
	switch {
	case w.mask == full && signed:
		for i := range d {
			d[i] = D(int64(int32(uint32(a[i])<<shift)>>shift)) & keep
		}
	case w.mask == full:
		for i := range d {
			d[i] = D(uint32(a[i])<<shift>>shift) & keep
		}
	case signed:
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = D(int64(int32(uint32(a[i])<<shift)>>shift)) & keep
		}
	default:
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = D(uint32(a[i])<<shift>>shift) & keep
		}
	}
}
