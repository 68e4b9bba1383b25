package ptx

// SymbolKind is the kind of thing that a name refers to.
type SymbolKind uint8

// The kinds of symbols.
const (
	SymReg       SymbolKind = iota // a register declared in the function: Var, Index
	SymSpecial                     // a predefined register such as %tid or %clock64
	SymVar                         // a variable: Var, whose Space says where it is
	SymParam                       // one of the function's own parameters: Var, Index (its place in Params or Returns)
	SymFunc                        // a function: Func
	SymLabel                       // a label: Index
	SymTargets                     // a .branchtargets list: Branch
	SymCalls                       // a .calltargets list: Calls
	SymPrototype                   // a .callprototype: Proto
)

// Symbol is what a name refers to in its scope. Two uses of a name in the same scope share a
// Symbol, so symbols may be compared by address.
type Symbol struct {
	Kind   SymbolKind
	Name   string
	Type   Type // of a register or variable
	Vector int  // number of components of a vector register or variable; 0 for a scalar
	Index  int  // a register's number in Code.Regs; a label's instruction in Code.Instrs (may be its length)
	Return bool // a SymParam that is one of the function's Returns
	Var    *Var
	Func   *Func
	Branch *BranchTargets
	Calls  *CallTargets
	Proto  *CallPrototype
}

// register reports whether the symbol is a register, the function's or a predefined one.
func (s *Symbol) register() bool { return s.Kind == SymReg || s.Kind == SymSpecial }
