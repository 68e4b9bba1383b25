package preempt

import (
	"slices"

	"vgpud/ptx"
)

// Claims.
//
// A claim is a compare-and-swap from a constant or parameter, the mark of a word that is free, in an
// array that the kernel writes in no other way, at addresses that move on, and in a loop that ends
// when it finds the mark: an insertion into a hash table or tree. A word without the mark never gets
// it back and never changes again, so whatever makes the loop pass over a word stays as it is, and
// if other blocks claim words there are only fewer to be found. So the loop waits for no block. A
// lock is no claim, since it is given back.

// claims reports whether instruction i is a claim.
func (r *loop) claims(i int) bool {
	in := r.f.code.Instrs[i]
	mark, ok := r.mark(i)
	if !ok || in.Guarded() || len(r.writers(register(&in.Operands[0]))) != 1 {
		return false
	}
	found := register(&in.Operands[0])
	bits := lastWidth(in)
	ends := slices.ContainsFunc(r.exits, func(x exit) bool {
		is := func(a, b *ptx.Operand) bool {
			return register(a) == found && r.invariant(b) && r.valueOf(b, bits, r.first) == mark
		}
		return x.op == "eq" && (is(x.a, x.b) || is(x.b, x.a))
	})
	return ends && !r.invariant(address(in)) && r.marksStay(i, mark)
}

// follows reports whether instruction i is a compare-and-swap at an address that is computed from
// what it found in an earlier iteration, in a loop that synchronizes with nothing: it goes through a
// structure that other blocks change, to its end. A lock holds no way to another one.
func (r *loop) follows(i int) bool {
	in := r.f.code.Instrs[i]
	return in.Opcode == "atom" && in.Has("cas") && len(in.Operands) == 4 && !r.synchronizes() &&
		r.anyInput([]int32{register(address(in))}, i, func(x int32, at int) bool {
			return slices.Contains(r.reaching(x, at), int32(i))
		})
}

// mark returns what instruction i, a compare-and-swap, expects, if that is the same for the whole
// grid.
func (s *waitAnalysis) mark(i int) (linear, bool) {
	in := s.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("cas") || len(in.Operands) != 4 {
		return linear{}, false
	}
	bits := lastWidth(in)
	v := s.valueOf(&in.Operands[2], bits, i)
	exact := bits > 0 && v.state == precise && v.lo == v.hi && v.lo > -maxBound && v.lo < maxBound
	return v, exact && !slices.ContainsFunc(v.terms[:], func(t term) bool { return t.of != noQuantity && t.of < firstQuantity })
}

// marksStay reports whether nothing in the kernel may write mark to the words that instruction i
// claims: all else that writes the array claims words in the same way, or writes other words beside
// them. Another array may be written in any way but by an exchange or ordered store, which might
// give back a lock under another name.
func (s *waitAnalysis) marksStay(i int, mark linear) bool {
	if !s.f.code.Func.Entry { // its callers may write anything
		return false
	}
	for k, in := range s.f.code.Instrs {
		if s.work++; k == i || !s.writes(k) {
			continue
		}
		same, ok := s.mark(k)
		switch {
		case s.exhausted():
			return false
		case ok && same == mark && in.Modifiers[len(in.Modifiers)-1] == s.f.code.Instrs[i].Modifiers[len(s.f.code.Instrs[i].Modifiers)-1]:
		case s.array(k)&s.array(i) == 0 && !ordered(in) && !in.Has("exch") && !in.Has("cas") && in.Opcode != "call":
		case s.beside(k, i):
		default:
			return false
		}
	}
	return true
}

// beside reports whether instructions k and i access different words of one array of structures.
func (s *waitAnalysis) beside(k, i int) bool {
	a, b := s.residue(address(s.f.code.Instrs[k]), k, maxMoves), s.residue(address(s.f.code.Instrs[i]), i, maxMoves)
	by := min(a.by, b.by)
	if a.base.terms != b.base.terms || a.base.terms[0].of == noQuantity || by < 2 {
		return false
	}
	if by == exactly {
		by = maxBound
	}
	apart := func(a, b int64, n int64) bool { // b begins behind a
		d := (b - a) % by
		if d < 0 {
			d += by
		}
		return d >= n
	}
	na, nb := bytes(s.f.code.Instrs[k]), bytes(s.f.code.Instrs[i])
	return apart(a.base.lo, b.base.lo, na) && apart(b.base.lo, a.base.lo, nb)
}

// residue is what is known of an address: base, plus a multiple of by, a power of two.
type residue struct {
	base linear
	by   int64
}

// exactly is the by of an address that is base.
const exactly = infinite

// residue returns what is known of an operand of 64 bits, or of the address that it is, before
// instruction at.
func (s *waitAnalysis) residue(o *ptx.Operand, at, steps int) residue {
	v := s.valueOf(o, 64, at)
	roots := !slices.ContainsFunc(v.terms[:], func(t term) bool { return t.of != noQuantity && t.of < firstQuantity })
	if v.state == precise && v.lo == v.hi && roots {
		return residue{v, exactly}
	}
	none := residue{constant(0), 1}
	x := register(o)
	if x < 0 || steps == 0 || len(s.reaching(x, at)) != 1 {
		return none
	}
	d := int(s.reaching(x, at)[0])
	in := s.f.code.Instrs[d]
	of := func(k int) residue { return s.residue(&in.Operands[k], d, steps-1) }
	var is residue
	switch op := in.Opcode; {
	case in.Guarded() || len(in.Modifiers) == 0 || in.Has("sat"):
		return none
	case (op == "mov" || op == "cvta") && len(in.Operands) == 2:
		is = of(1)
	case op == "add" && len(in.Operands) == 3 && in.Modifiers[len(in.Modifiers)-1][1:] == "64":
		a, b := of(1), of(2)
		is = residue{a.base.plus(b.base, 1), min(a.by, b.by)}
	case op == "mul" && in.Has("wide") && len(in.Operands) == 3:
		is = residue{constant(0), s.powerOfTwo(&in.Operands[2], d)}
	case op == "mad" && in.Has("wide") && len(in.Operands) == 4:
		c := of(3)
		is = residue{c.base, min(s.powerOfTwo(&in.Operands[2], d), c.by)}
	case op == "shl" && len(in.Operands) == 3 && in.Modifiers[0] == "b64":
		by, ok := s.valueOf(&in.Operands[2], 32, d).constant()
		if !ok || by < 0 || by > 20 {
			return none
		}
		is = residue{constant(0), 1 << by}
	default:
		return none
	}
	if is.base.state != precise || is.base.lo != is.base.hi {
		return none
	}
	is.base = is.base.plus(constant(o.Offset()), 1)
	return is
}

// powerOfTwo returns the largest power of two that an operand is a multiple of, if that is known.
func (s *waitAnalysis) powerOfTwo(o *ptx.Operand, at int) int64 {
	v, ok := s.valueOf(o, 32, at).constant()
	if !ok || v <= 0 {
		return 1
	}
	return v & -v
}
