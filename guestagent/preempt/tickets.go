package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// tickets finds the loads by which all threads of a block get what one of them has written to shared memory, a ticket say:
// each stands right behind a barrier of the whole block, and of all writes to shared memory that may come before that
// barrier there is just one, to the place that is loaded. (Where no thread has come by that one, what is loaded means
// nothing.)
func (l *linears) tickets() {
	f := l.f
	for load, barrier := range f.broadcasts() {
		at := f.graph.BlockOf(barrier)
		if f.graph.Blocks[at].Loop != flow.None || l.exhausted() {
			continue
		}
		write, several := -1, false
		for _, b := range f.before(at) {
			for i := f.graph.Blocks[b].First; i < f.graph.Blocks[b].End && (b != at || i < barrier); i++ {
				l.work++
				if slices.Contains(l.effects.Writes(i), l.effects.Space(ptx.SharedSpace)) {
					several = several || write >= 0
					write = i
				}
			}
		}
		if write >= 0 && !several {
			l.hand(write, load)
		}
	}
}

// soleWrites does the same for variables in shared memory that one instruction alone writes to, and reports whether there
// are some. Whatever is loaded from there is what that one wrote.
func (l *linears) soleWrites() bool {
	shared := l.effects.Space(ptx.SharedSpace)
	writes := map[*ptx.Symbol][]int{}
	for i := range l.f.code.Instrs {
		if !slices.Contains(l.effects.Writes(i), shared) {
			continue
		}
		at := l.address(i)
		if at.known != exactly || at.base.sym == nil {
			return false
		}
		writes[at.base.sym] = append(writes[at.base.sym], i)
	}
	n := len(l.handed)
	for i, in := range l.f.code.Instrs {
		if from := address(in); loadsShared(in) && from.Base == ptx.KindSymbol && len(writes[from.Sym]) == 1 {
			l.hand(writes[from.Sym][0], i)
		}
	}
	return len(l.handed) > n
}

// hand notes that a load of shared memory gets what a write has put there, if both are of the same 32 bits.
func (l *linears) hand(write, load int) {
	st, ld := l.f.code.Instrs[write], l.f.code.Instrs[load]
	if st.Opcode != "st" || ld.Opcode != "ld" || len(st.Operands) != 2 || len(ld.Operands) != 2 ||
		len(st.Modifiers) != 2 || len(ld.Modifiers) != 2 || register(&st.Operands[1]) < 0 {
		return
	}
	to, from := address(st), address(ld)
	wrote, _ := integer(st.Modifiers[1])
	read, _ := integer(ld.Modifiers[1])
	if to.Base == ptx.KindSymbol && from.Base == ptx.KindSymbol && to.Sym == from.Sym && to.Offset() == from.Offset() && wrote == 32 && read == 32 {
		l.handed[load], l.writes[load] = &st.Operands[1], write
	}
}

// before lists the blocks from which control may come to block b, b included.
func (f *funcStudy) before(b int) []int {
	seen, list := map[int]bool{b: true}, []int{b}
	for n := 0; n < len(list); n++ {
		for _, p := range f.graph.Blocks[list[n]].Preds {
			if !seen[p] && f.graph.Blocks[p].Reachable {
				seen[p] = true
				list = append(list, p)
			}
		}
	}
	return list
}
