package rewrite

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

// Copier copies the parts of a tree that [ptx.Resolve] writes to or that a transformation changes.
// Declarations, labels, prototypes and the like never change, and the copies share them.
type Copier struct {
	instrs slab[ptx.Instr]
	ops    slab[ptx.Operand]
}

// Instr copies an instruction without the symbols that Resolve bound.
func (c *Copier) Instr(in *ptx.Instr) *ptx.Instr {
	out := &c.instrs.alloc(1)[0]
	*out = *in
	out.Pred.Sym = nil
	out.Operands = c.Operands(in.Operands)
	return out
}

// Operands copies a list of operands without their symbols.
func (c *Copier) Operands(list []ptx.Operand) []ptx.Operand {
	if len(list) == 0 {
		return nil
	}
	out := c.ops.alloc(len(list))
	copy(out, list)
	for i := range out {
		out[i].Sym = nil
		if len(out[i].Elems) > 0 {
			out[i].Elems = c.Operands(out[i].Elems)
		}
	}
	return out
}

// Block copies a block and its nested blocks.
func (c *Copier) Block(b *ptx.Block) *ptx.Block {
	out := &ptx.Block{Pos: b.Pos, End: b.End, Stmts: make([]ptx.Stmt, len(b.Stmts))}
	for i, s := range b.Stmts {
		out.Stmts[i] = c.Stmt(s)
	}
	return out
}

// Stmt copies a statement.
func (c *Copier) Stmt(s ptx.Stmt) ptx.Stmt {
	switch s := s.(type) {
	case *ptx.Instr:
		return c.Instr(s)
	case *ptx.Block:
		return c.Block(s)
	case *ptx.BranchTargets:
		return &ptx.BranchTargets{Pos: s.Pos, Name: s.Name, Labels: s.Labels}
	}
	return s
}

// Function copies a function.
func (c *Copier) Function(f *ptx.Func) *ptx.Func {
	out := *f
	if f.Body != nil {
		out.Body = c.Block(f.Body)
	}
	return &out
}

// NewInstr returns an empty instruction, and NewOperands n empty operands, from the copier's memory.
func (c *Copier) NewInstr() *ptx.Instr { return &c.instrs.alloc(1)[0] }

// NewOperands returns n empty operands; see NewInstr.
func (c *Copier) NewOperands(n int) []ptx.Operand { return c.ops.alloc(n) }
