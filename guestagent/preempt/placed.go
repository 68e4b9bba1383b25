package preempt

import (
	"vgpud/ptx"
)

// Functions that are called through pointers and need the block's index.
//
// A pointer to a function may be anywhere: in a table, in memory that outlives the launch. So such
// a function can't be given the index as a parameter, as a copy that is called by name is: the
// original kernels call it, too. It reads the index from shared memory instead, in place of %ctaid
// and %nctaid, and every kernel of the module that may reach it writes the index there, the
// original ones as well.
//
// That takes no barrier: all threads of a block write the same values before they read them, and in
// a loop over tasks, one separates each task from the next.

// placedBytes is how much shared memory holds the index. Variables behind it move by as much, which
// keeps their alignment beyond what they declare, as with slotPaddedBytes.
const placedBytes = 1 << 10

// placedDecl declares the variable at module scope.
func (t *module) placedDecl() *ptx.Var {
	return &ptx.Var{Space: ptx.SharedSpace, Align: 1, Type: ptx.B8, Name: t.names.Ours("V_index"), Dims: []int64{placedBytes}}
}

// fragPlace finds the index in shared memory.
const fragPlace = `
	.reg .b32 %V_keep;
	mov.u32 %V_keep, V_index;
	add.u32 %V_keep, %V_keep, 3;
	and.b32 %V_keep, %V_keep, -4;
`

// fragKeep writes the index, and fragKept reads it.
const (
	fragKeep = `
	st.volatile.shared.u32 [%V_keep], %V_x;
	st.volatile.shared.u32 [%V_keep+4], %V_y;
	st.volatile.shared.u32 [%V_keep+8], %V_z;
	st.volatile.shared.u32 [%V_keep+12], %V_gx;
	st.volatile.shared.u32 [%V_keep+16], %V_gy;
	st.volatile.shared.u32 [%V_keep+20], %V_gz;
`
	fragKept = `
	ld.volatile.shared.u32 %V_x, [%V_keep];
	ld.volatile.shared.u32 %V_y, [%V_keep+4];
	ld.volatile.shared.u32 %V_z, [%V_keep+8];
	ld.volatile.shared.u32 %V_gx, [%V_keep+12];
	ld.volatile.shared.u32 %V_gy, [%V_keep+16];
	ld.volatile.shared.u32 %V_gz, [%V_keep+20];
`
)

// fragTaskRegs declares the index and the grid's size.
const fragTaskRegs = `
	.reg .b32 %V_x;
	.reg .b32 %V_y;
	.reg .b32 %V_z;
	.reg .b32 %V_gx;
	.reg .b32 %V_gy;
	.reg .b32 %V_gz;
`

// fragHardware copies the hardware's index and grid.
const fragHardware = `
	mov.u32 %V_x, %ctaid.x;
	mov.u32 %V_y, %ctaid.y;
	mov.u32 %V_z, %ctaid.z;
	mov.u32 %V_gx, %nctaid.x;
	mov.u32 %V_gy, %nctaid.y;
	mov.u32 %V_gz, %nctaid.z;
`

// checkPlaced refuses all kernels that would need an index in shared memory if one of them can't
// have it: the functions that read it are the same for all.
func (t *module) checkPlaced() {
	why := ""
	for _, e := range t.info.entries {
		if !e.placed || why != "" {
			continue
		}
		named := false
		static := int64(placedBytes)
		seen := map[*ptx.Var]bool{}
		for _, f := range e.reach {
			s := t.scan(f)
			named = named || s.names
			if s.sizes {
				why = f.code.Func.Name + " reads how much shared memory there is"
			}
			for _, v := range s.shared {
				if !seen[v] {
					seen[v] = true
					static = min(static+min(v.Size(), staticShared+1), staticShared+1)
				}
			}
		}
		switch {
		case e.sharedMemory && !named:
			why = e.fn.Name + " accesses shared memory without a name"
		case static > staticShared:
			why = e.fn.Name + " has no shared memory left for the block's index"
		}
	}
	if why == "" {
		return
	}
	for _, e := range t.info.entries {
		if e.placed {
			e.refuse(IndirectCall, "a call through a pointer may reach a function that reads the block's index, and %s", why)
		}
	}
}

// place makes the functions that read their index from shared memory, and the original kernels that
// write it there, in place of those of the same name.
func (t *module) place() {
	t.replaced = map[*ptx.Func]*ptx.Func{}
	for _, e := range t.info.entries {
		if !e.placed {
			continue
		}
		for _, f := range e.reach {
			if fn := f.code.Func; f.placed && t.replaced[fn] == nil {
				b := &builder{Copier: t.copier, names: t.names}
				b.add(fragTaskRegs, fragPlace, fragKept)
				body := &rewriter{builder: b, module: t, index: true}
				body.stmts(fn.Body.Stmts, &b.stmts)
				out := *fn
				out.Body = b.body(fn.Body)
				t.replaced[fn] = &out
			}
		}
		b := &builder{Copier: t.copier, names: t.names}
		copied := t.copier.Block(e.fn.Body)
		n := countDecls(copied)
		b.decls = append(b.decls, copied.Stmts[:n]...)
		b.add(fragTaskRegs, fragHardware, fragPlace, fragKeep)
		b.stmts = append(b.stmts, copied.Stmts[n:]...)
		out := *e.fn
		out.Body = b.body(e.fn.Body)
		t.replaced[e.fn] = &out
	}
}
