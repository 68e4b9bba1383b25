package simt

import (
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// member compiles operand i, the mask of the participating lanes.
func (c *compiler) member(in *ptx.Instr, i int) (operand, error) {
	return c.src(&in.Operands[i], ptx.B32)
}

// exchange adds an instruction with which lanes exchange the values of register from. Without a
// member operand the lanes of the path exchange. It returns the instruction, whose other operands
// the caller fills in.
func (c *compiler) exchange(in *ptx.Instr, x exchange, member, d operand) *inst {
	i := inst{op: exchangeHere, d: d.index, run: 1}
	if member.class != noReg {
		i.op, i.run = exchangeSync, 0
	}
	x.form, x.member = in.Form(), member.index
	x.same = len(in.Operands) > 0 && in.Operands[len(in.Operands)-1].Kind == ptx.KindImm // the mask is the last operand
	i.x = &extra{exchange: &x}
	return c.emit(i, c.costs().Shuffle)
}

// shfl compiles shfl and shfl.sync.
func shfl(c *compiler, in *ptx.Instr, m *mods) error {
	n := 4
	sync := m.has("sync")
	if sync {
		n = 5
	}
	name := m.any("up", "down", "bfly", "idx")
	mode, ok := shuffleModes[name]
	if t := m.typ(); t != ptx.B32 || !ok {
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
	i := c.exchange(in, exchange{run: shuffle(mode, p), from: src[0]}, member, d)
	i.b, i.c = src[1].index, src[2].index
	return nil
}

// shuffleMode is how shfl computes the lane to read from.
type shuffleMode uint8

const (
	shuffleIdx shuffleMode = iota
	shuffleUp
	shuffleDown
	shuffleBfly
)

var shuffleModes = map[string]shuffleMode{"idx": shuffleIdx, "up": shuffleUp, "down": shuffleDown, "bfly": shuffleBfly}

// shuffle returns the exchange of shfl, following the PTX ISA's definition.
func shuffle(mode shuffleMode, p operand) exchangeFunc {
	return func(w *warp, in *inst, takers, _ uint32, v offer) {
		d, a, b, c := &w.r32[in.d], v.word, &w.r32[in.b], &w.r32[in.c]
		if d == a {
			keep := *a
			a = &keep
		}
		var valid uint32
		for lane := range lanes {
			if takers>>lane&1 == 0 {
				continue
			}
			bval, cval, seg := int(b[lane]&31), int(c[lane]&31), int(c[lane]>>8&31)
			maxLane := lane&seg | cval&^seg
			minLane := lane & seg
			var j int
			var ok bool
			switch mode {
			case shuffleUp:
				j = lane - bval
				ok = j >= maxLane
			case shuffleDown:
				j = lane + bval
				ok = j <= maxLane
			case shuffleBfly:
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
			w.setPred(p.index, takers, valid)
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
	c.exchange(in, exchange{apart: true, from: a, run: func(w *warp, in *inst, takers, who uint32, v offer) {
		yes := v.votes & who
		switch mode {
		case "ballot":
			fill(&w.r32[in.d], takers, yes)
		case "all":
			w.setPred(in.d, takers, -bit(yes == who))
		case "any":
			w.setPred(in.d, takers, -bit(yes != 0))
		case "uni":
			w.setPred(in.d, takers, -bit(yes == who || yes == 0))
		}
	}}, member, d)
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
	c.exchange(in, exchange{apart: true, from: a, run: func(w *warp, in *inst, takers, who uint32, v offer) {
		var out [lanes]uint32
		same := true
		for m := who; m != 0; m &= m - 1 {
			i := first(m)
			for k := who; k != 0; k &= k - 1 {
				j := first(k)
				out[i] |= bit(v.at(i) == v.at(j)) << j
			}
			same = same && out[i] == who
		}
		if mode == "all" {
			fill(&w.r32[in.d], takers, who&-bit(same))
		} else {
			for m := takers; m != 0; m &= m - 1 {
				i := first(m)
				w.r32[in.d][i] = out[i]
			}
		}
		if p.class != noReg {
			w.setPred(p.index, takers, -bit(same))
		}
	}}, member, d)
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
	c.exchange(in, exchange{apart: true, from: a, run: func(w *warp, in *inst, takers, who uint32, v offer) {
		if who == 0 {
			return
		}
		x := v.word
		sum := x[first(who)]
		if pick.Abs {
			sum &^= 1 << 31
		}
		if who == full && op == "add" { // by far the most frequent case
			for _, v := range x[1:] {
				sum += v
			}
		} else {
			for m := who & (who - 1); m != 0; m &= m - 1 {
				sum = f(sum, x[first(m)], 0)
			}
		}
		fill(&w.r32[in.d], takers, sum)
	}}, member, d)
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
	c.exchange(in, exchange{apart: true, run: func(w *warp, in *inst, takers, who uint32, _ offer) {
		leader := first(who)
		fill(&w.r32[in.d], takers, uint32(leader))
		w.setPred(p.index, takers, 1<<leader)
	}}, member, d)
	return nil
}

func activemask(c *compiler, in *ptx.Instr, m *mods) error {
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, func(w *warp, in *inst) { fill(&w.r32[in.d], w.mask, w.mask) }, c.costs().Simple, ptx.B32)
}
