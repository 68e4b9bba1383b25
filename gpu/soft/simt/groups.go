package simt

import "bytes"

// An exchange is an instruction by which lanes of a warp meet: shfl, vote, match, redux, elect and bar.warp. With .sync
// each lane names the lanes that it exchanges with, itself among them, and waits for them. Lanes that run together need
// not name the same ones: those that do are a group, and each group is an exchange of its own. Nor need the lanes of a
// group be at the same place of the code: they meet where each is, and those at instructions of one form exchange.

// exchange is an instruction between lanes.
type exchange struct {
	run    exchangeFunc
	form   string  // of the instruction: lanes at others of this form exchange with those that are here
	member uint32  // the register that holds each lane's mask
	same   bool    // which is the same in all lanes
	apart  bool    // the result depends on the group
	from   operand // what the lanes bring; noReg: nothing
}

// exchangeFunc gives the lanes of takers their results. They and perhaps others, which are at another place, are the
// group who, all of which have brought v. It must leave alone the path that is running.
type exchangeFunc func(w *warp, in *inst, takers, who uint32, v offer)

// offer is what lanes bring: one of these, by the class of exchange.from.
type offer struct {
	word  *[lanes]uint32
	wide  *[lanes]uint64
	votes uint32
}

// at is what a lane brings.
func (v offer) at(lane int) uint64 {
	if v.wide != nil {
		return v.wide[lane]
	}
	return uint64(v.word[lane])
}

// given keeps what lanes bring from different places.
type given struct {
	word  [lanes]uint32
	wide  [lanes]uint64
	votes uint32
}

// offered is what the lanes at x bring.
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

// exchangeHere is an exchange between the lanes of the path.
func exchangeHere(w *warp, in *inst) {
	x := in.x.exchange
	x.run(w, in, w.mask, w.mask, w.offered(x))
}

// exchangeSync is an exchange with .sync. The lanes that are named may all be in the path, and usually are.
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
		who := member[lane] & w.mask // read first: the result may go to the same register
		group := naming(member, rest, who, w.mask)
		x.run(w, in, group, who, w.offered(x))
		if rest &^= group; rest != 0 {
			w.tally(0, in.cost) // the groups take their turns
		}
	}
	w.pc++
}

// common returns which bits every lane of mask has in r, and which some lane has.
func common(r *[lanes]uint32, mask uint32) (every, some uint32) {
	if b := bytes32(r); bytes.Equal(b[:len(b)-4], b[4:]) { // all lanes have the same, which is usual
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

// naming returns those lanes of set that name the lanes who of the lanes among.
func naming(member *[lanes]uint32, set, who, among uint32) (group uint32) {
	for m := set; m != 0; m &= m - 1 {
		i := first(m)
		group |= bit(member[i]&among == who) << i
	}
	return group
}

// await parks the running path, each of its groups for itself, until the lanes that it names are at an exchange too:
// a group whose lanes are here must not wait for another's.
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

// meet carries out the exchanges whose groups have come together, and lets their paths go on.
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

// complete carries out the exchange of the group who. The lanes here wait for it, some of them at pc.
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

// bring collects what the lanes of the group who bring from their places.
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

// takeGiven gives the lanes of p their results of what those of the group who have brought that are at instructions of
// the same form. PTX has lanes exchange with no others; here they have just met.
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
