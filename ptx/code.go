package ptx

// Program is a module whose names are bound.
type Program struct {
	Module  *Module
	Globals map[string]*Symbol // variables and functions at module scope; an alias leads to its function
	Codes   []*Code            // one for each function with a body, in the module's order

	byFunc map[*Func]*Code
}

// Code returns the code of the function called name, or nil if there is none with a body.
func (p *Program) Code(name string) *Code {
	s := p.Globals[name]
	if s == nil || s.Kind != SymFunc {
		return nil
	}
	return p.byFunc[s.Func]
}

// Code is a function's body in the form in which it is executed: nested blocks flattened, names
// bound (Operand.Sym, Pred.Sym).
type Code struct {
	Func    *Func
	Instrs  []*Instr  // in order
	Locs    []*Loc    // the .loc that applies to each instruction; nil if the function has none
	Regs    []*Symbol // the registers it uses and those among its parameters, numbered: Regs[i].Index == i
	Params  []*Symbol // one for each of Func.Params: SymParam, or SymReg where it is a register
	Returns []*Symbol // one for each of Func.Returns, in the same way
	Vars    []*Symbol // the .shared, .local, .param, … variables declared anywhere in its body, in order
	Labels  []*Symbol // all labels, in order
}
