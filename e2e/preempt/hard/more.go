package hard

import "strings"

// moreKinds is the number of statements that more writes.
const moreKinds = 9

// more writes a statement of one of some kinds beyond stmt's own. Those that need all threads that
// have not returned write something else where only some are.
func (g *gen) more(kind, depth int, together bool) {
	if depth == 0 && kind == 1 || !together && kind >= 4 {
		kind = 0
	}
	switch kind {
	case 0: // a call that only some threads make
		if g.funcs == 0 {
			g.emit("add.u32 %s, %s, %%laneid;", g.value(), g.value())
			return
		}
		g.varied()
		v := g.value()
		g.emit("{ .param .b32 a; .param .b32 b; .reg .b32 %%got; st.param.b32 [a], %s; @%%p1 call (b), f%d, (a); ld.param.b32 %%got, [b]; selp.b32 %s, %%got, %s, %%p1; }",
			g.value(), g.draw(g.funcs), v, v)
	case 1:
		g.branchTable(depth, together)
	case 2: // a sum by compare-and-swap
		again := g.label()
		g.emit("{ .reg .b32 %%old, %%new, %%was; mov.u64 %%a4, totals;")
		g.text.WriteString(again + ":\n")
		g.emit("ld.%s.global.u32 %%old, [%%a4+%d]; add.u32 %%new, %%old, %s;", []string{"volatile", "relaxed.gpu"}[g.draw(2)], 4*g.draw(4), g.value())
		at := g.text.String()
		at = at[strings.LastIndex(at, "[%a4+"):]
		at = at[:strings.IndexByte(at, ']')+1]
		g.emit("atom.global.cas.b32 %%was, %s, %%old, %%new; setp.ne.u32 %%p1, %%was, %%old; @%%p1 bra %s; }", at, again)
	case 3: // each thread at one of two barriers, or none
		if !together {
			g.emit("membar.gl;")
			return
		}
		g.varied()
		g.emit("@%%p1 barrier.sync 0; @!%%p1 barrier.sync 0;")
	case 4: // a barrier that the whole block passes or not
		g.alike()
		g.emit("@%%p1 %s;", []string{"bar.sync 0", "barrier.sync 0", "bar.sync 0"}[g.draw(3)])
	case 5: // an asynchronous copy, for which the thread waits or not
		site := g.sites % genSites
		g.sites++
		g.emit("bar.sync 0; mov.u32 %%t4, slots%d; add.u32 %%t5, %%t4, %%t3; cp.async.ca.shared.global [%%t5], [%%a2], 4;", site)
		if g.draw(2) == 0 {
			g.emit("cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; add.u32 %%t4, %%t4, %d; ld.shared.u32 %s, [%%t4];", 4*g.draw(int(g.threads)), g.value())
			g.emit("bar.sync 0;")
			return
		}
		g.emit("cp.async.wait_all; ld.shared.u32 %s, [%%t5];", g.value())
	case 6: // a sum in shared memory
		g.emit("bar.sync 0; setp.eq.u32 %%p3, %%t1, 0; @%%p3 st.shared.u32 [sum], 0;")
		if g.draw(2) == 0 {
			g.emit("mov.u32 %%t4, 0; st.shared.u32 [sum], %%t4;")
		} else {
			g.emit("bar.sync 0; bar.sync 0; mov.u32 %%t4, 0; st.shared.u32 [sum], %%t4;")
		}
		g.emit("bar.sync 0; red.shared.add.u32 [sum], %s; bar.sync 0; ld.shared.u32 %s, [sum]; bar.sync 0;", g.value(), g.value())
	case 7: // what lanes exchange
		if !g.votes {
			g.exchange()
			return
		}
		v, w := g.value(), g.value()
		switch g.draw(5) {
		case 0:
			g.emit("shfl.sync.bfly.b32 %%t4|%%p1, %s, %d, 31, -1; selp.b32 %s, %%t4, %s, %%p1;", v, 1+g.draw(31), w, w)
		case 1:
			g.emit("match.any.sync.b32 %%t4, %s, -1; popc.b32 %s, %%t4;", v, w)
		case 2:
			g.emit("redux.sync.add.u32 %s, %s, -1;", w, v)
		case 3:
			g.emit("bar.warp.sync -1; xor.b32 %s, %s, %s;", w, w, v)
		case 4:
			g.emit("shfl.sync.up.b32 %%t4|%%p1, %s, %d, 0, -1; selp.b32 %s, %%t4, %s, %%p1;", v, 1+g.draw(31), w, w)
		}
	case 8: // a barrier in a function
		if !g.named {
			g.exchange()
			return
		}
		g.emit("call meet;")
	}
}

// branchTable writes a branch to one of several statements, by a thread's own value or by one that
// is equal in the block.
func (g *gen) branchTable(depth int, together bool) {
	if together = together && g.draw(2) == 0; together {
		g.emit("mov.u32 %%t4, %s; and.b32 %%t4, %%t4, 3;", []string{"%ctaid.x", "%ctaid.y", "%nctaid.x"}[g.draw(3)])
	} else {
		g.emit("and.b32 %%t4, %s, 3;", g.value())
	}
	table, end := g.label(), g.label()
	ways := []string{g.label(), g.label(), g.label()}
	targets := append(ways, end)
	g.text.WriteString(table + ": .branchtargets " + strings.Join(targets, ", ") + ";\n")
	g.emit("brx.idx %%t4, %s;", table)
	for _, way := range ways {
		g.text.WriteString(way + ":\n")
		if g.stmts++; g.stmts <= genStmts {
			g.stmt(depth-1, together)
		}
		if g.draw(4) > 0 { // else it goes on with the next
			g.emit("bra %s;", end)
		}
	}
	g.text.WriteString(end + ":\n")
}
