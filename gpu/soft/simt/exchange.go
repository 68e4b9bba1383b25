package simt

import (
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// The instructions in which a warp's lanes exchange values name the lanes that
// take part. Where those have parted they meet first.

// assemble reports whether the lanes that in wants together, those of the mask
// in register reg, are all in the running path. If not, the path waits for the
// others, and the instruction is executed again when they are here.
func (w *warp) assemble(reg uint32) bool {
	members := w.r32[reg][first(w.mask)] & w.live
	met := w.resync&w.mask == w.mask // perhaps at different places
	w.resync &^= w.mask
	if met || members&^w.mask == 0 {
		return true
	}
	w.park(waitWarp).arg = members
	w.meet()
	w.next()
	return false
}

// meet lets those paths go on whose lanes all wait for one another.
func (w *warp) meet() {
	for {
		var here uint32
		for i := range w.paths {
			if w.paths[i].wait == waitWarp {
				here |= w.paths[i].mask
			}
		}
		if here == 0 {
			return
		}
		var met uint32
		for i := range w.paths {
			if p := &w.paths[i]; p.wait == waitWarp && p.arg&w.live&^here == 0 {
				met = p.arg & w.live
				break
			}
		}
		if met == 0 {
			return
		}
		for i := range w.paths {
			if p := &w.paths[i]; p.wait == waitWarp && p.mask&met != 0 {
				p.wait = ready
				w.resync |= p.mask
			}
		}
		w.gather(met)
	}
}

// member compiles the mask of lanes that take part.
func (c *compiler) member(in *ptx.Instr, i int) (operand, error) {
	return c.src(&in.Operands[i], ptx.B32)
}

// exchange adds an instruction between lanes: f runs once those of the member
// mask are together. Without one it is between those that are there.
func (c *compiler) exchange(f opFunc, member operand, d operand, src ...operand) {
	in := inst{d: d.index}
	for i, s := range src {
		switch i {
		case 0:
			in.a = s.index
		case 1:
			in.b = s.index
		case 2:
			in.c = s.index
		}
	}
	if member.class == noReg {
		in.op, in.run = f, 1
	} else {
		in.op = func(w *warp, in *inst) {
			if w.assemble(member.index) {
				f(w, in)
				w.pc++
			}
		}
	}
	c.emit(in, c.costs().Shuffle)
}

// shfl compiles shfl and shfl.sync.
func shfl(c *compiler, in *ptx.Instr, m *mods) error {
	n := 4
	sync := m.has("sync")
	if sync {
		n = 5
	}
	mode := m.any("up", "down", "bfly", "idx")
	if t := m.typ(); t != ptx.B32 || mode == "" {
		return c.unsupported("this form of shfl")
	}
	if err := c.arity(in, n, n); err != nil {
		return err
	}
	dst := &in.Operands[0]
	var p operand
	var err error
	if dst.Kind == ptx.KindPair {
		if p, err = c.dstPred(&dst.Elems[1]); err != nil {
			return err
		}
		dst = &dst.Elems[0]
	}
	d, err := c.dst(dst, ptx.B32)
	if err != nil {
		return err
	}
	var src [3]operand
	for i := range src {
		if src[i], err = c.src(&in.Operands[i+1], ptx.B32); err != nil {
			return err
		}
	}
	var member operand
	if sync {
		if member, err = c.member(in, 4); err != nil {
			return err
		}
	}
	c.exchange(shuffle(mode, p), member, d, src[:]...)
	return nil
}

// shuffle makes the exchange of shfl: PTX ISA, shfl, in its own terms.
func shuffle(mode string, p operand) opFunc {
	return func(w *warp, in *inst) {
		d, a, b, c := &w.r32[in.d], w.r32[in.a], &w.r32[in.b], &w.r32[in.c] // a copy: d may be a
		var valid uint32
		for m := w.mask; m != 0; m &= m - 1 {
			lane := first(m)
			bval, cval, seg := int(b[lane]&31), int(c[lane]&31), int(c[lane]>>8&31)
			maxLane := lane&seg | cval&^seg
			minLane := lane & seg
			var j int
			var ok bool
			switch mode {
			case "up":
				j = lane - bval
				ok = j >= maxLane
			case "down":
				j = lane + bval
				ok = j <= maxLane
			case "bfly":
				j = lane ^ bval
				ok = j <= maxLane
			default:
				j = minLane | bval&^seg
				ok = j <= maxLane
			}
			if !ok {
				j = lane
			}
			d[lane] = a[j&31]
			valid |= bit(ok) << lane
		}
		if p.class != noReg {
			w.setPred(p.index, w.mask, valid)
		}
	}
}

// vote compiles vote and vote.sync.
func vote(c *compiler, in *ptx.Instr, m *mods) error {
	n := 2
	sync := m.has("sync")
	if sync {
		n = 3
	}
	mode := m.any("all", "any", "uni", "ballot")
	if mode == "" || m.any("pred", "b32") == "" {
		return c.unsupported("this form of vote")
	}
	if err := c.arity(in, n, n); err != nil {
		return err
	}
	var d operand
	var err error
	if mode == "ballot" {
		d, err = c.dst(&in.Operands[0], ptx.B32)
	} else {
		d, err = c.dstPred(&in.Operands[0])
	}
	if err != nil {
		return err
	}
	a, err := c.pred(&in.Operands[1])
	if err != nil {
		return err
	}
	var member operand
	if sync {
		if member, err = c.member(in, 2); err != nil {
			return err
		}
	}
	not := -bit(a.not)
	c.exchange(func(w *warp, in *inst) {
		who := w.mask
		if sync {
			who &= w.r32[member.index][first(w.mask)]
		}
		v := (w.pred[in.a] ^ not) & who
		switch mode {
		case "ballot":
			fill(&w.r32[in.d], w.mask, v)
		case "all":
			w.setPred(in.d, w.mask, -bit(v == who))
		case "any":
			w.setPred(in.d, w.mask, -bit(v != 0))
		case "uni":
			w.setPred(in.d, w.mask, -bit(v == who || v == 0))
		}
	}, member, d, a)
	return nil
}

// match compiles match.any and match.all.
func match(c *compiler, in *ptx.Instr, m *mods) error {
	mode := m.any("any", "all")
	if !m.has("sync") || mode == "" {
		return c.unsupported("this form of match")
	}
	t := m.typ()
	if t != ptx.B32 && t != ptx.B64 {
		return c.unsupported("type .%s", t)
	}
	if err := c.arity(in, 3, 3); err != nil {
		return err
	}
	dst := &in.Operands[0]
	var p operand
	var err error
	if dst.Kind == ptx.KindPair {
		if p, err = c.dstPred(&dst.Elems[1]); err != nil {
			return err
		}
		dst = &dst.Elems[0]
	}
	d, err := c.dst(dst, ptx.B32)
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	member, err := c.member(in, 2)
	if err != nil {
		return err
	}
	c.exchange(func(w *warp, in *inst) {
		who := w.mask & w.r32[member.index][first(w.mask)]
		var out [lanes]uint32
		same := true
		for m := who; m != 0; m &= m - 1 {
			i := first(m)
			for k := who; k != 0; k &= k - 1 {
				j := first(k)
				out[i] |= bit(w.lane(a, i) == w.lane(a, j)) << j
			}
			same = same && out[i] == who
		}
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			v := out[i]
			if mode == "all" {
				v = who & -bit(same)
			}
			w.r32[in.d][i] = v
		}
		if p.class != noReg {
			w.setPred(p.index, w.mask, -bit(same))
		}
	}, member, d, a)
	return nil
}

// redux compiles redux.sync.
func redux(c *compiler, in *ptx.Instr, m *mods) error {
	op := m.any("add", "min", "max", "and", "or", "xor")
	pick := arith.Pick{Max: op == "max", Abs: m.has("abs"), NaN: m.has("NaN")}
	if !m.has("sync") {
		return c.unsupported("redux without .sync")
	}
	t := m.typ()
	f := atomics32[op][t]
	if t == ptx.F32 && (op == "min" || op == "max") {
		f = func(a, b, _ uint32) uint32 {
			return math.Float32bits(pick.F32(math.Float32frombits(a), math.Float32frombits(b)))
		}
	}
	if f == nil {
		return c.unsupported("operation .%s on .%s", op, t)
	}
	if err := c.arity(in, 3, 3); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], t)
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	member, err := c.member(in, 2)
	if err != nil {
		return err
	}
	c.exchange(func(w *warp, in *inst) {
		who := w.mask & w.r32[member.index][first(w.mask)]
		if who == 0 {
			return
		}
		x := &w.r32[in.a]
		v := x[first(who)]
		if pick.Abs {
			v &^= 1 << 31
		}
		for m := who & (who - 1); m != 0; m &= m - 1 {
			v = f(v, x[first(m)], 0)
		}
		fill(&w.r32[in.d], w.mask, v)
	}, member, d, a)
	return nil
}

// elect compiles elect.sync: the lowest lane is the leader.
func elect(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("sync") || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.KindPair {
		return c.unsupported("this form of elect")
	}
	d, err := c.dst(&in.Operands[0].Elems[0], ptx.B32)
	if err != nil {
		return err
	}
	p, err := c.dstPred(&in.Operands[0].Elems[1])
	if err != nil {
		return err
	}
	member, err := c.member(in, 1)
	if err != nil {
		return err
	}
	c.exchange(func(w *warp, in *inst) {
		leader := first(w.mask & w.r32[member.index][first(w.mask)])
		fill(&w.r32[in.d], w.mask, uint32(leader))
		w.setPred(p.index, w.mask, 1<<leader)
	}, member, d)
	return nil
}

func activemask(c *compiler, in *ptx.Instr, m *mods) error {
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, func(w *warp, in *inst) { fill(&w.r32[in.d], w.mask, w.mask) }, c.costs().Simple, ptx.B32)
}
