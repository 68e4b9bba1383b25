package preempt

import (
	"maps"
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Values that the threads of a block share.
//
// Often one thread finds out something for its block, such as a ticket from a counter: it writes it
// to shared memory, the block synchronizes, and all threads read it. They all read the same value
// unless a thread writes there before the last one has read. If the block synchronized once more
// right behind the load, none could: between two barriers that all threads of the block pass, they
// only load. So a load that follows such a barrier, with only computation in between, can be made
// uniform by one more barrier, in the forms with a loop. That adds no deadlock, since a thread on
// its way from one barrier to the other waits for nothing.
//
// It is done if the kernel could not run in a loop otherwise: code whose execution depends on such
// a load would count as executed by only some threads, of which others may have returned before a
// barrier.

// shareLoads tries to make the kernel fit for a loop by making loads uniform.
func (w *analyzer) shareLoads(e *entryInfo) *entryInfo {
	switch e.loops {
	case WarpAfterReturn, DivergentNamedBarrier, DivergentFunctionBarrier:
	default:
		return e
	}
	f := e.self
	if e.refused != None || e.asyncs || slices.ContainsFunc(e.reach, func(g *funcInfo) bool { return g.loops != None }) {
		return e // something may write to shared memory asynchronously
	}
	was, risk := f.uniform, f.warpRisk
	try := func(loads map[int]int) *entryInfo {
		f.uniform = f.graph.UniformityWith(func(i int) bool { _, ok := loads[i]; return ok })
		f.warpRisk = false
		w.warpRisk(f)
		again := &entryInfo{fn: e.fn, self: f, shared: loads}
		again.walk(w)
		return again
	}
	const rounds = 3 // for loads from addresses that were loaded in this way
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
	// Each load costs a barrier, so keep only those that are needed.
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

// broadcasts returns the loads that can be made uniform, each with the barrier before it.
func (f *funcInfo) broadcasts() map[int]int {
	loads := map[int]int{}
	for _, b := range f.barriers {
		if b.kind != "sync" || b.partial || b.in.Guarded() || !f.convergent(b.instr) {
			continue
		}
		end := f.graph.Blocks[f.graph.BlockOf(b.instr)].End
		for i := b.instr + 1; i < end; i++ {
			in := f.code.Instrs[i]
			if !noSideEffect(in) {
				break
			}
			if loadsShared(in) && !in.Guarded() {
				loads[i] = b.instr
			}
		}
	}
	return loads
}

// noSideEffect reports whether an instruction only computes or loads, and does not wait.
func noSideEffect(in *ptx.Instr) bool {
	return flow.Pure(in.Opcode) || in.Opcode == "ld" && !mayWait(in) && !in.Has("volatile") && !in.Has("relaxed") && !in.Has("acquire")
}

// loadsShared reports whether an instruction is an ordinary load from shared memory.
func loadsShared(in *ptx.Instr) bool {
	return in.Opcode == "ld" && slices.ContainsFunc(in.Modifiers, func(m string) bool {
		return m == "shared" || strings.HasPrefix(m, "shared::cta")
	})
}

// sharedLoads maps the last of the loads behind each barrier to that barrier, which is repeated
// behind it.
func (e *entryInfo) sharedLoads() map[*ptx.Instr]*ptx.Instr {
	last := map[int]int{}
	for load, barrier := range e.shared {
		last[barrier] = max(last[barrier], load)
	}
	out := map[*ptx.Instr]*ptx.Instr{}
	for barrier, load := range last {
		out[e.self.code.Instrs[load]] = e.self.code.Instrs[barrier]
	}
	return out
}
