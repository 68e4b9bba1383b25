package preempt

import (
	"slices"

	"vgpud/ptx"
)

// linear is what is known of a value: base + Σ times·of + [lo, hi]. The zero linear is a value that nothing gives yet.
//
// Registers are taken as integers that don't overflow, as indices don't. Grids are taken to have one dimension: ctaid.y is
// zero. Values are not followed through memory, but for a ticket that one thread hands to its block (see tickets).
type linear struct {
	known  knowledge
	base   root // a parameter of 64 bits or a variable, which addresses begin from; its sym is nil without one
	terms  [maxTerms]term
	lo, hi int64 // endless where it is not known
}

type knowledge uint8

const (
	nothing  knowledge = iota // no instruction gives the value
	exactly                   // it is as the rest says
	anything                  // it may be any
)

// term is a multiple of a quantity that stays the same in a thread while it runs one block of the grid.
type term struct {
	of    quantity // 0: there is no such term
	times int64
}

// quantity is what is not known before the launch. A parameter of 32 bits is one of the positive ones from firstParam on,
// a ticket the negative number, less one, of the instruction that gives it: the atomic operation that draws it, or the load
// of what one thread has handed to its block.
type quantity int32

const (
	noQuantity quantity = iota
	blockIndex          // %ctaid.x
	threadIndex
	firstParam
)

const (
	maxTerms = 4
	endless  = int64(1) << 61
	// farAway is more than anything that is counted or addressed by: a bound beyond it counts as none.
	farAway = int64(1) << 40
	// mostTimes bounds the factors of terms, so that an index of 32 bits overflows in no grid that has room for its words.
	mostTimes = int64(1) << 20
)

var unknown = linear{known: anything}

func constant(v int64) linear     { return between(v, v) }
func between(lo, hi int64) linear { return linear{known: exactly, lo: lo, hi: hi} }
func multiple(of quantity) linear { return linear{known: exactly, terms: [maxTerms]term{{of, 1}}} }
func (v linear) number() bool {
	return v.known == exactly && v.base.sym == nil && v.terms[0].of == noQuantity
}
func (v linear) fixed() (int64, bool) { return v.lo, v.number() && v.lo == v.hi }

// bound keeps the bounds within what they may be, and makes anything of what has too large factors.
func (v linear) bound() linear {
	if v.lo < -farAway {
		v.lo = -endless
	}
	if v.hi > farAway {
		v.hi = endless
	}
	for _, t := range v.terms {
		if t.times > mostTimes || t.times < -mostTimes {
			return unknown
		}
	}
	if v.lo > farAway || v.hi < -farAway {
		return unknown
	}
	return v
}

// plus returns v + w.
func (v linear) plus(w linear) linear {
	if v.known != exactly || w.known != exactly {
		return linear{known: max(v.known, w.known)}.strict(v, w)
	}
	if v.base.sym != nil && w.base.sym != nil {
		return unknown
	}
	if w.base.sym != nil {
		v.base = w.base
	}
	v.lo, v.hi = v.lo+w.lo, v.hi+w.hi
	for _, t := range w.terms {
		if t.of == noQuantity {
			break
		}
		at := slices.IndexFunc(v.terms[:], func(u term) bool { return u.of == t.of || u.of == noQuantity })
		if at < 0 {
			return unknown
		}
		v.terms[at] = term{t.of, v.terms[at].times + t.times}
	}
	return v.sorted().bound()
}

// strict returns nothing where one of the operands is nothing yet, else v.
func (v linear) strict(operands ...linear) linear {
	for _, o := range operands {
		if o.known == nothing {
			return linear{}
		}
	}
	return v
}

// sorted drops terms of nothing and orders the rest.
func (v linear) sorted() linear {
	kept := v.terms[:0:0]
	for _, t := range v.terms {
		if t.of != noQuantity && t.times != 0 {
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, func(a, b term) int { return int(a.of) - int(b.of) })
	v.terms = [maxTerms]term{}
	copy(v.terms[:], kept)
	return v
}

// scaled returns v · by.
func (v linear) scaled(by int64) linear {
	switch {
	case v.known != exactly:
		return v
	case by == 0:
		return constant(0)
	case v.base.sym != nil || by > mostTimes || by < -mostTimes:
		return unknown
	}
	for i := range v.terms {
		v.terms[i].times *= by
	}
	lo, hi := v.lo, v.hi
	if by < 0 {
		lo, hi = hi, lo
	}
	mul := func(x int64) int64 {
		switch {
		case x <= -farAway || x >= farAway:
			if (x < 0) == (by < 0) {
				return endless
			}
			return -endless
		}
		return x * by
	}
	v.lo, v.hi = mul(lo), mul(hi)
	return v.sorted().bound()
}

// fits returns v, or anything if v is a number that 32 bits may not hold, by what an instruction multiplies with.
func (v linear) fits(in *ptx.Instr) linear {
	if len(in.Modifiers) == 0 {
		return v
	}
	if bits, _ := integer(in.Modifiers[len(in.Modifiers)-1]); bits != 32 || !v.number() || in.Has("wide") {
		return v
	}
	if v.lo > 1<<32 || v.hi < -1<<31 || in.Opcode == "shl" && v.hi > 1<<32 {
		return unknown
	}
	return v
}

// or returns what is known of a value that is v or w.
func (v linear) or(w linear) linear {
	switch {
	case v.known == nothing:
		return w
	case w.known == nothing:
		return v
	case v.known == anything || w.known == anything || v.base != w.base || v.terms != w.terms:
		return unknown
	}
	v.lo, v.hi = min(v.lo, w.lo), max(v.hi, w.hi)
	return v
}

// maxThreads bounds the threads of a block in each dimension.
const maxThreads = 1024

// withThread puts bounds of the thread's index in its place.
func (v linear) withThread(lo, hi int64) linear {
	for i, t := range v.terms {
		if v.known == exactly && t.of == threadIndex {
			v.terms[i] = term{}
			return v.sorted().plus(between(lo, hi).scaled(t.times))
		}
	}
	return v
}

// least returns what v, less its base, is at least: quantities but parameters are not below zero.
func (v linear) least() int64 {
	if v.known != exactly || slices.ContainsFunc(v.terms[:], func(t term) bool { return t.of >= firstParam || t.times < 0 }) {
		return -endless
	}
	return v.lo
}

// negative reports whether v, which is no address, may be below zero.
func (v linear) negative() bool { return v.base.sym != nil || v.least() < 0 }
