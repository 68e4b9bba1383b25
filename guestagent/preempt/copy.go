package preempt

import "vgpud/ptx"

// slab hands out values of T from chunks, so that a copy of a large function takes few allocations.
type slab[T any] struct {
	free []T
	size int // of the last chunk
}

const (
	slabStart = 64
	slabLimit = 256 // at most 32 KiB for what is handed out here, beyond which the runtime is slower
)

func (s *slab[T]) take(n int) []T {
	if len(s.free) < n {
		s.size = min(max(2*s.size, slabStart), slabLimit)
		s.free = make([]T, max(n, s.size))
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}

// copier copies the parts of a tree that [ptx.Resolve] writes into, or that a transformation changes. Declarations,
// labels, prototypes and the like are never changed and shared between the copies.
type copier struct {
	instrs slab[ptx.Instr]
	ops    slab[ptx.Operand]
}

// instr copies an instruction without what Resolve has bound.
func (c *copier) instr(in *ptx.Instr) *ptx.Instr {
	out := &c.instrs.take(1)[0]
	*out = *in
	out.Pred.Sym = nil
	out.Operands = c.operands(in.Operands)
	return out
}

func (c *copier) operands(list []ptx.Operand) []ptx.Operand {
	if len(list) == 0 {
		return nil
	}
	out := c.ops.take(len(list))
	copy(out, list)
	for i := range out {
		out[i].Sym = nil
		if len(out[i].Elems) > 0 {
			out[i].Elems = c.operands(out[i].Elems)
		}
	}
	return out
}

// block copies a block and the blocks in it.
func (c *copier) block(b *ptx.Block) *ptx.Block {
	out := &ptx.Block{Pos: b.Pos, End: b.End, Stmts: make([]ptx.Stmt, len(b.Stmts))}
	for i, s := range b.Stmts {
		out.Stmts[i] = c.stmt(s)
	}
	return out
}

func (c *copier) stmt(s ptx.Stmt) ptx.Stmt {
	switch s := s.(type) {
	case *ptx.Instr:
		return c.instr(s)
	case *ptx.Block:
		return c.block(s)
	case *ptx.BranchTargets:
		return &ptx.BranchTargets{Pos: s.Pos, Name: s.Name, Labels: s.Labels}
	}
	return s
}

// function copies a function as it is.
func (c *copier) function(f *ptx.Func) *ptx.Func {
	out := *f
	if f.Body != nil {
		out.Body = c.block(f.Body)
	}
	return &out
}
