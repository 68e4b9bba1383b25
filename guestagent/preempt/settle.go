package preempt

import (
	"maps"
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Values that a block's threads share.
//
// Often one thread finds out something for its block, a ticket from a counter, say: it writes it to shared memory, the
// block meets, and all read it. What they read is the same for all, unless somebody writes there before the last has
// read. If the block met once more right behind the load, nobody could: between two barriers that all threads of the
// block pass, all that anybody does is to load. So a load that stands behind such a barrier, with nothing between but
// computing, can be made uniform by one more barrier, in the forms that have a loop. It adds no deadlock, since a thread
// on its way from the one barrier to the other waits for nothing.
//
// That is done where the kernel could not be run in a loop otherwise: what follows such a load by branches is taken for
// what only some threads do, and then threads may have returned that others want to meet.

// settle tries to make the kernel fit for a loop by making loads uniform.
func (w *studying) settle(e *entryStudy) *entryStudy {
	switch e.loops {
	case WarpAfterReturn, DivergentNamedBarrier, DivergentFunctionBarrier:
	default:
		return e
	}
	f := e.self
	if e.refused != None || e.asyncs || slices.ContainsFunc(e.reach, func(g *funcStudy) bool { return g.loops != None }) {
		return e // something may write to shared memory by itself
	}
	was, risk := f.uniform, f.warpRisk
	try := func(loads map[int]int) *entryStudy {
		f.uniform = f.graph.UniformityWith(func(i int) bool { _, ok := loads[i]; return ok })
		f.warpRisk = false
		w.warpRisk(f)
		again := &entryStudy{fn: e.fn, self: f, settled: loads}
		again.walk(w)
		return again
	}
	const rounds = 3 // loads at addresses that were loaded so
	loads := map[int]int{}
	best := e
	for range rounds {
		n := len(loads)
		maps.Copy(loads, f.broadcasts())
		if len(loads) == n {
			break
		}
		if best = try(loads); best.loops == None {
			break
		}
	}
	if len(loads) == 0 || best.loops != None || best.refused != None {
		f.uniform, f.warpRisk = was, risk
		return e
	}
	// Each costs a barrier, so only those that it takes.
	const few = 16
	if len(loads) <= few {
		for _, i := range slices.Sorted(maps.Keys(loads)) {
			less := maps.Clone(loads)
			delete(less, i)
			if again := try(less); again.loops == None && again.refused == None {
				loads = less
			}
		}
	}
	return try(loads)
}

// broadcasts finds the loads that can be made uniform, and for each the barrier before it.
func (f *funcStudy) broadcasts() map[int]int {
	loads := map[int]int{}
	for _, b := range f.barriers {
		if b.kind != "sync" || b.partial || b.in.Guarded() || !f.together(b.instr) {
			continue
		}
		end := f.graph.Blocks[f.graph.BlockOf(b.instr)].End
		for i := b.instr + 1; i < end; i++ {
			in := f.code.Instrs[i]
			if !flowsOn(in) {
				break
			}
			if loadsShared(in) && !in.Guarded() {
				loads[i] = b.instr
			}
		}
	}
	return loads
}

// flowsOn reports whether an instruction only computes or loads, and waits for nobody.
func flowsOn(in *ptx.Instr) bool {
	return flow.Pure(in.Opcode) || in.Opcode == "ld" && !mayWait(in) && !in.Has("volatile") && !in.Has("relaxed") && !in.Has("acquire")
}

// loadsShared reports whether an instruction is an ordinary load from shared memory.
func loadsShared(in *ptx.Instr) bool {
	return in.Opcode == "ld" && slices.ContainsFunc(in.Modifiers, func(m string) bool {
		return m == "shared" || strings.HasPrefix(m, "shared::cta")
	})
}

// settling maps the last of the loads behind each barrier to that barrier, which must come again behind it.
func (e *entryStudy) settling() map[*ptx.Instr]*ptx.Instr {
	last := map[int]int{}
	for load, barrier := range e.settled {
		last[barrier] = max(last[barrier], load)
	}
	out := map[*ptx.Instr]*ptx.Instr{}
	for barrier, load := range last {
		out[e.self.code.Instrs[load]] = e.self.code.Instrs[barrier]
	}
	return out
}
