package preempt

import "vgpud/ptx"

// slab allocates values of T in chunks, so that the copy of a large function takes few allocations.
type slab[T any] struct {
	free []T
	size int // of the last chunk
}

const (
	slabStart = 64
	slabLimit = 256 // at most 32 KiB for the types used here; the runtime is slower with larger objects
)

func (s *slab[T]) alloc(n int) []T {
	if len(s.free) < n {
		s.size = min(max(2*s.size, slabStart), slabLimit)
		s.free = make([]T, max(n, s.size))
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}

// copier copies the parts of a tree that [ptx.Resolve] writes to or that a transformation changes.
// Declarations, labels, prototypes and the like never change, and the copies share them.
type copier struct {
	instrs slab[ptx.Instr]
	ops    slab[ptx.Operand]
}

// instr copies an instruction without the symbols that Resolve bound.
func (c *copier) instr(in *ptx.Instr) *ptx.Instr {
	out := &c.instrs.alloc(1)[0]
	*out = *in
	out.Pred.Sym = nil
	out.Operands = c.operands(in.Operands)
	return out
}

func (c *copier) operands(list []ptx.Operand) []ptx.Operand {
	if len(list) == 0 {
		return nil
	}
	out := c.ops.alloc(len(list))
	copy(out, list)
	for i := range out {
		out[i].Sym = nil
		if len(out[i].Elems) > 0 {
			out[i].Elems = c.operands(out[i].Elems)
		}
	}
	return out
}

// block copies a block and its nested blocks.
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

// function copies a function.
func (c *copier) function(f *ptx.Func) *ptx.Func {
	out := *f
	if f.Body != nil {
		out.Body = c.block(f.Body)
	}
	return &out
}
