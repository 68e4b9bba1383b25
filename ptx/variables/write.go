package variables

import (
	"strconv"

	"vgpud/ptx"
)

// writer copies one body.
type writer struct {
	*binder
	regs int // that it needs for addresses
	out  []ptx.Stmt
}

// function copies a function with addresses for names.
func (b *binder) function(f *ptx.Func) *ptx.Func {
	w := &writer{binder: b}
	out := *f
	body := w.block(f.Body)
	var head []ptx.Stmt
	for i := range w.regs {
		head = append(head, &ptx.Var{Space: ptx.RegSpace, Type: ptx.B64, Name: w.reg(i)})
	}
	body.Stmts = append(head, body.Stmts...)
	out.Body = body
	return &out
}

// reg returns the name of a register for an address.
func (w *writer) reg(i int) string { return w.names.Ours("%V_variable" + strconv.Itoa(i)) }

// block copies a block. Line numbers are the original's.
func (w *writer) block(b *ptx.Block) *ptx.Block {
	out := &ptx.Block{Pos: b.Pos, End: b.End, Stmts: make([]ptx.Stmt, 0, len(b.Stmts))}
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Loc, *ptx.File:
		case *ptx.Block:
			out.Stmts = append(out.Stmts, w.block(s))
		case *ptx.Instr:
			w.out = nil
			w.instr(s)
			out.Stmts = append(out.Stmts, w.out...)
		default:
			out.Stmts = append(out.Stmts, w.copier.Stmt(s))
		}
	}
	return out
}

// instr copies an instruction, after those that put addresses into registers.
func (w *writer) instr(in *ptx.Instr) {
	c := w.copier.Instr(in)
	if in.Opcode == "ld" || in.Opcode == "cvta" {
		c.Modifiers = global(in.Modifiers)
	}
	if v := mov(in); v != nil {
		c.Operands[1] = ptx.Int(w.address(v, &in.Operands[1]))
	} else {
		w.operands(in, in.Operands, c.Operands, 0)
	}
	w.out = append(w.out, c)
}

// mov returns the variable whose address an instruction moves into a register, or nil.
func mov(in *ptx.Instr) *ptx.Var {
	if in.Opcode != "mov" || len(in.Operands) != 2 || in.Operands[1].Kind != ptx.KindSymbol {
		return nil
	}
	return bound(&in.Operands[1])
}

// address returns the address of what an operand names.
func (w *writer) address(v *ptx.Var, o *ptx.Operand) int64 {
	return int64(w.places[v].Address) + o.Offset()
}

// operands replaces the variables in the copy now of the operands was. An instruction has no room for an
// address of 64 bits, save for mov, so each is put into a register. used is how many are taken.
func (w *writer) operands(in *ptx.Instr, was, now []ptx.Operand, used int) int {
	for i := range was {
		if v := bound(&was[i]); v != nil {
			name := w.reg(used)
			used++
			w.regs = max(w.regs, used)
			w.out = append(w.out, &ptx.Instr{
				Pos: in.Pos, Opcode: "mov", Modifiers: []string{"b64"},
				Operands: []ptx.Operand{ptx.Reg(name), ptx.Int(w.address(v, &was[i]))},
			})
			if now[i].Kind == ptx.KindAddr {
				now[i] = ptx.Operand{Kind: ptx.KindAddr, Base: ptx.KindReg, Name: name}
			} else {
				now[i] = ptx.Reg(name)
			}
			continue
		}
		used = w.operands(in, was[i].Elems, now[i].Elems, used)
	}
	return used
}

// global replaces the constant space in modifiers.
func global(modifiers []string) []string {
	out := make([]string, len(modifiers))
	for i, m := range modifiers {
		if m == "const" {
			m = "global"
		}
		out[i] = m
	}
	return out
}
