package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Loops that synchronize with nothing.
//
// An ordinary load need not see what another block writes while both run: PTX promises that only
// behind something that synchronizes, such as a barrier, a fence or an atomic operation that
// acquires, and no first-level cache is kept coherent. So a loop without any of these cannot wait
// through ordinary loads. Those that load from the same address in every iteration still count, since
// kernels that a compiler did not make poll like that; those that walk through memory do not: a
// search, a merge, a sort, the nodes of a list or tree. The same holds for calls of functions that do
// not synchronize either.

// synchronizes reports whether an instruction other than a call may order the thread's ordinary
// accesses to memory with those of other blocks, or is one that a thread waits with.
func synchronizes(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld", "st":
		return ordered(in) || in.Has("cv") || in.Has("cg") || in.Has("wt")
	case "atom", "red":
		return slices.ContainsFunc(in.Modifiers, func(m string) bool { return m == "acquire" || m == "release" || m == "acq_rel" }) ||
			in.Has("async")
	case "bra", "brx", "call", "ret", "exit", "prefetch", "prefetchu", "trap", "tex", "tld4", "activemask", "elect", "match",
		"redux", "shfl", "vote", "ldmatrix", "stmatrix", "mma", "movmatrix", "wmma", "createpolicy":
		return false
	}
	return !flow.Pure(in.Opcode) || readsClock(in)
}

// readsClock reports whether an instruction reads a clock, as a thread does that waits for a time.
func readsClock(in *ptx.Instr) bool {
	return slices.ContainsFunc(in.Operands, func(o ptx.Operand) bool {
		if o.Sym == nil || o.Sym.Kind != ptx.SymSpecial {
			return false
		}
		switch o.Sym.Name {
		case "%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi":
			return true
		}
		return false
	})
}

// synchronizes reports whether anything in the loop synchronizes.
func (r *loop) synchronizes() bool {
	return slices.ContainsFunc(r.instrs(r.body), func(i int) bool {
		return synchronizes(r.f.code.Instrs[i]) || slices.Contains(r.f.reads, i) && r.f.code.Instrs[i].Opcode == "call" ||
			r.callsAny(i, func(g *funcInfo) bool { return g.syncsDeep })
	})
}

// walks reports whether instruction i, an ordinary load or a call, reads other memory from iteration
// to iteration in a loop that synchronizes with nothing. A function may keep its place in memory.
func (r *loop) walks(i int) bool {
	in := r.f.code.Instrs[i]
	switch {
	case in.Opcode == "ld" && !mayWait(in):
		return !r.synchronizes() && (r.movesFrom([]int32{register(address(in))}, i) || r.onlyPassed(i))
	case in.Opcode != "call" || r.callsAny(i, func(g *funcInfo) bool { return g.readsDeep }) || r.synchronizes():
		return false
	case r.callsAny(i, func(g *funcInfo) bool { return g.writesDeep }):
		return true
	}
	return slices.ContainsFunc(r.writers(r.effects.Space(ptx.ParamSpace)), func(k int) bool {
		st := r.f.code.Instrs[k]
		return st.Opcode == "st" && r.movesFrom(r.registersRead(k), k)
	})
}

// onlyPassed reports whether the loop's end depends on the result of instruction i only through what
// functions do with it that also write: they work on an object, and do not just look at a flag.
func (r *loop) onlyPassed(i int) bool {
	works := func(k int) bool { return r.callsAny(k, func(g *funcInfo) bool { return g.writesDeep }) }
	if !slices.ContainsFunc(r.instrs(r.body), works) {
		return false
	}
	was := r.trace.Unrelated
	defer func() { r.trace.Unrelated = was }()
	r.trace.Unrelated = func(k int, x int32) bool {
		in := r.f.code.Instrs[k]
		return was(k, x) || in.Opcode == "call" || in.Opcode == "st" && ofParameters(in)
	}
	r.trace.Run(r.body, []int{i}, func(int) bool { return true })
	return !slices.ContainsFunc(r.leaving, func(b int) bool { return r.trace.Instr(r.f.graph.Blocks[b].End - 1) })
}

// registersRead returns the registers that instruction i reads.
func (r *loop) registersRead(i int) []int32 {
	memory := r.effects.Space(ptx.SharedSpace)
	return slices.DeleteFunc(slices.Clone(r.effects.Reads(i)), func(x int32) bool { return x >= memory })
}

// movesFrom reports whether one of the registers regs is computed at instruction i from a value that
// each iteration takes from the one before and moves on.
func (r *loop) movesFrom(regs []int32, i int) bool {
	return r.anyInput(regs, i, func(x int32, at int) bool {
		carried := r.carried(x, at)
		return slices.ContainsFunc(carried, func(d int) bool {
			return r.moves(d) || r.anyInput(r.registersRead(d), d, func(y int32, at int) bool {
				return slices.ContainsFunc(r.reaching(y, at), func(k int32) bool {
					return r.contains(r.f.graph.BlockOf(int(k))) && r.moves(int(k))
				})
			})
		})
	})
}

// anyInput calls is for registers regs at instruction i and for all that they are computed from
// within the loop, each with an instruction that reads it, until it returns true.
func (r *loop) anyInput(regs []int32, i int, is func(x int32, at int) bool) bool {
	var work []use
	seen := map[use]bool{}
	add := func(regs []int32, at int) {
		for _, x := range regs {
			if u := (use{x, at}); x >= 0 && !seen[u] {
				seen[u] = true
				work = append(work, u)
			}
		}
	}
	for add(regs, i); len(work) > 0 && !r.exhausted(); r.work++ {
		u := work[len(work)-1]
		work = work[:len(work)-1]
		if is(u.reg, u.at) {
			return true
		}
		for _, d := range r.reaching(u.reg, u.at) {
			if r.contains(r.f.graph.BlockOf(int(d))) {
				add(r.registersRead(int(d)), int(d))
			}
		}
	}
	return false
}

// carried returns the instructions in the loop that give register x the value which the next
// iteration has at instruction at; none if at does not have a value from before the loop in the
// first.
func (r *loop) carried(x int32, at int) (list []int) {
	inside := func(d int32) bool { return r.contains(r.f.graph.BlockOf(int(d))) }
	if !slices.ContainsFunc(r.reaching(x, at), func(d int32) bool { return !inside(d) }) {
		return nil
	}
	for _, d := range r.reaching(x, r.first) {
		if inside(d) {
			list = append(list, int(d))
		}
	}
	return list
}

// moves reports whether instruction i does more than to choose among values or to change bits back
// and forth.
func (r *loop) moves(i int) bool {
	in := r.f.code.Instrs[i]
	switch in.Opcode {
	case "ld", "atom", "call", "mad", "shr", "div":
		return true
	case "add", "sub":
		if len(in.Operands) != 3 {
			return false
		}
		steps := func(k int) bool { return !r.invariant(&in.Operands[k]) || r.step(&in.Operands[k]) != 0 }
		return steps(2) && !r.invariant(&in.Operands[1]) || in.Opcode == "add" && steps(1) && !r.invariant(&in.Operands[2])
	}
	return false
}

// bounds reports whether instruction i is an ordinary load of the bound of a counter that each
// iteration advances: the loop ends if the bound does not change. The loop itself may change it only
// if it synchronizes with nothing: then it extends its own work, and no other block ends that.
func (r *loop) bounds(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "ld" || mayWait(in) || len(in.Operands) != 2 || r.synchronizes() && !r.soleAccess(i, flow.None) {
		return false
	}
	is := func(o *ptx.Operand) bool {
		x := register(o)
		return x >= 0 && x == register(&in.Operands[0]) && !slices.ContainsFunc(r.writers(x), func(d int) bool {
			ld := r.f.code.Instrs[d]
			return ld.Opcode != "ld" || mayWait(ld) || !r.invariant(address(ld))
		})
	}
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		a, b := r.steps(register(x.a)), r.steps(register(x.b))
		switch x.op {
		case "gt", "ge":
			return a > 0 && is(x.b) || b < 0 && x.signed && is(x.a)
		case "lt", "le":
			return a < 0 && x.signed && is(x.b) || b > 0 && is(x.a)
		}
		return false
	})
}

// fewIterations bounds the iterations of a loop that ends too soon to wait for another block: it
// would be in vain in the original if that block has not begun.
const fewIterations = 1 << 10

// attempts reports whether instruction i accesses one word after another in a loop that ends after a
// few iterations, by a constant.
func (r *loop) attempts(i int) bool {
	sleeps := func(i int) bool {
		return r.f.code.Instrs[i].Opcode == "nanosleep" || r.callsAny(i, func(g *funcInfo) bool { return g.syncsDeep })
	}
	moves := r.movesFrom([]int32{register(address(r.f.code.Instrs[i]))}, i)
	return moves && !slices.ContainsFunc(r.instrs(r.body), sleeps) && slices.ContainsFunc(r.exits, func(x exit) bool {
		return r.few(x.op, x.a, x.b, x.signed) || r.few(reversed[x.op], x.b, x.a, x.signed)
	})
}

var reversed = map[string]string{"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

// few reports whether counter a, which starts at a constant and advances by constant steps, comes to
// op of constant b within a few iterations.
func (r *loop) few(op string, a, b *ptx.Operand, signed bool) bool {
	const most = 1 << 20
	end, constant := r.valueOf(b, 64, r.first).constant()
	first, known := r.firstOf(register(a))
	step := r.steps(register(a))
	if !known || !constant || !r.invariant(b) || step == 0 || max(first, end) > most || min(first, end) < -most {
		return false
	}
	if !signed && (first < 0 || end < max(-step-1, 0) || op == "lt" && end < -step) {
		return false
	}
	n := (end - first) / step
	switch op {
	case "eq":
		return n > 0 && n <= fewIterations && first+n*step == end
	case "gt", "ge":
		return step > 0 && n <= fewIterations
	case "lt", "le":
		return step < 0 && n <= fewIterations
	}
	return false
}

// firstOf returns the constant that counter x, or a copy of it, has before the loop.
func (r *loop) firstOf(x int32) (int64, bool) {
	for range maxMoves {
		in := r.soleWriter(x)
		if in == nil || len(in.Operands) < 2 {
			break
		}
		if x = register(&in.Operands[1]); x < 0 { // of a move, or what the step is added to
			break
		}
		before := slices.DeleteFunc(slices.Clone(r.reaching(x, r.first)), func(d int32) bool { return r.contains(r.f.graph.BlockOf(int(d))) })
		if len(before) == 0 {
			continue
		}
		v := linear{}
		for _, d := range before {
			v = v.join(r.results[d])
		}
		return v.constant()
	}
	return 0, false
}
