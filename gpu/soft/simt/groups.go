package simt

import "bytes"

// An exchange is an instruction with which lanes of a warp communicate: shfl, vote, match, redux,
// elect and bar.warp. With .sync each lane names the lanes that it exchanges with, including
// itself, and waits for them. Lanes that run together need not name the same lanes: those that do
// form a group, and each group has its own exchange. The lanes of a group need not be at the same
// instruction either: they wait where they are, and those at instructions of one form exchange.

// exchange is an instruction between lanes.
type exchange struct {
	run    exchangeFunc
	form   string  // the form of the instruction: lanes at instructions of equal form exchange
	member uint32  // the register with each lane's mask
	same   bool    // the mask is the same in all lanes
	apart  bool    // the result depends on the group
	from   operand // the lanes' operands; noReg if there is none
}

// exchangeFunc sets the results of the lanes of takers. These lanes, and possibly others at other
// instructions, form the group who, whose operands are in v. It must not change the running path.
type exchangeFunc func(w *warp, in *inst, takers, who uint32, v offer)

// offer is the lanes' operands, in the field for the class of exchange.from.
type offer struct {
	word  *[lanes]uint32
	wide  *[lanes]uint64
	votes uint32
}

// at returns the operand of a lane.
func (v offer) at(lane int) uint64 {
	if v.wide != nil {
		return v.wide[lane]
	}
	return uint64(v.word[lane])
}

// given collects the operands of lanes at different instructions.
type given struct {
	word  [lanes]uint32
	wide  [lanes]uint64
	votes uint32
}

// offered returns the operands of the lanes at x.
func (w *warp) offered(x *exchange) (v offer) {
	switch x.from.class {
	case noReg:
	case predReg:
		v.votes = w.pred[x.from.index] ^ -bit(x.from.not)
	case reg64:
		v.wide = &w.r64[x.from.index]
	default:
		v.word = &w.r32[x.from.index]
	}
	return v
}

// exchangeHere performs an exchange between the lanes of the path.
func exchangeHere(w *warp, in *inst) {
	x := in.x.exchange
	x.run(w, in, w.mask, w.mask, w.offered(x))
}

// exchangeSync performs an exchange with .sync. Usually all named lanes are in the path.
func exchangeSync(w *warp, in *inst) {
	x := in.x.exchange
	member := &w.r32[x.member]
	every := member[first(w.mask)]
	some := every
	if !x.same {
		every, some = common(member, w.mask)
	}
	if some&w.live&^w.mask != 0 {
		w.await(in, member)
		return
	}
	if every == some || !x.apart {
		x.run(w, in, w.mask, w.mask&some, w.offered(x))
		w.pc++
		return
	}
	for rest := w.mask; rest != 0; {
		lane := first(rest)
		who := member[lane] & w.mask // read before the result, which may go to the same register
		group := naming(member, rest, who, w.mask)
		x.run(w, in, group, who, w.offered(x))
		if rest &^= group; rest != 0 {
			w.tally(0, in.cost) // the groups run one after the other
		}
	}
	w.pc++
}

// common returns the bits that every lane of mask has set in r, and those that some lane has set.
func common(r *[lanes]uint32, mask uint32) (every, some uint32) {
	if b := bytes32(r); bytes.Equal(b[:len(b)-4], b[4:]) { // usually all lanes are equal
		return r[0], r[0]
	}
	every = full
	for m := mask; m != 0; m &= m - 1 {
		v := r[first(m)]
		every &= v
		some |= v
	}
	return every, some
}

// naming returns the lanes of set that name the lanes who of the lanes among.
func naming(member *[lanes]uint32, set, who, among uint32) (group uint32) {
	for m := set; m != 0; m &= m - 1 {
		i := first(m)
		group |= bit(member[i]&among == who) << i
	}
	return group
}

// await parks the running path, each of its groups separately, until the named lanes are at an
// exchange too: a group whose lanes are here must not wait for another group's.
func (w *warp) await(in *inst, member *[lanes]uint32) {
	for rest := w.mask; rest != 0; {
		who := member[first(rest)] & w.live
		group := naming(member, rest, who, w.live)
		rest &^= group
		w.mask = group
		w.park(waitWarp).arg = who
		if rest != 0 {
			w.tally(0, in.cost)
		}
	}
	w.meet()
	w.next()
}

// meet performs the exchanges of complete groups, and makes their paths ready.
func (w *warp) meet() {
	var met uint32
	for i := range w.paths {
		p := &w.paths[i]
		if p.wait != waitWarp {
			continue
		}
		who := p.arg & w.live // a lane that has exited is not waited for
		var here uint32
		for k := range w.paths[i:] {
			if q := &w.paths[i+k]; q.meets(w, who) {
				here |= q.mask
			}
		}
		if who&^here == 0 {
			w.complete(p.pc, who, here)
			met |= here
		}
	}
	if met != 0 {
		w.gather(met)
	}
}

// meets reports whether the path waits at an exchange of the group who.
func (p *path) meets(w *warp, who uint32) bool { return p.wait == waitWarp && p.arg&w.live == who }

// complete performs the exchange of the group who. Its lanes in here wait for it, some of them at
// pc.
func (w *warp) complete(pc int32, who, here uint32) {
	together := true
	for i := range w.paths {
		if p := &w.paths[i]; p.meets(w, who) {
			together = together && p.pc == pc
		}
	}
	if together {
		in := &w.prog.code[pc]
		in.x.exchange.run(w, in, here, here&who, w.offered(in.x.exchange))
	} else {
		w.bring(who)
		for i := range w.paths {
			if p := &w.paths[i]; p.meets(w, who) {
				w.takeGiven(p, who)
			}
		}
	}
	for i := range w.paths {
		if p := &w.paths[i]; p.meets(w, who) {
			p.wait = ready
			p.pc++
		}
	}
}

// bring collects the operands of the group who from its lanes' instructions.
func (w *warp) bring(who uint32) {
	g := &w.block.given
	g.votes = 0
	for i := range w.paths {
		p := &w.paths[i]
		if !p.meets(w, who) {
			continue
		}
		v := w.offered(w.prog.code[p.pc].x.exchange)
		g.votes |= v.votes & p.mask
		for m := p.mask; m != 0; m &= m - 1 {
			lane := first(m)
			switch {
			case v.word != nil:
				g.word[lane] = v.word[lane]
			case v.wide != nil:
				g.wide[lane] = v.wide[lane]
			}
		}
	}
}

// takeGiven gives the lanes of p their results from the lanes of the group who at instructions of
// the same form. PTX does not define exchanges with others; here they only meet.
func (w *warp) takeGiven(p *path, who uint32) {
	in := &w.prog.code[p.pc]
	x := in.x.exchange
	var with uint32
	for i := range w.paths {
		if q := &w.paths[i]; q.meets(w, who) && w.prog.code[q.pc].x.exchange.form == x.form {
			with |= q.mask
		}
	}
	g := &w.block.given
	v := offer{votes: g.votes}
	if x.from.class == reg64 {
		v.wide = &g.wide
	} else {
		v.word = &g.word
	}
	x.run(w, in, p.mask, with&who, v)
}
