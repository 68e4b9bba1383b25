package ptx

// Pos is a position in the source: line and column, both from 1, the column in bytes. The zero Pos
// means no position, as in a tree that was built rather than parsed.
type Pos struct {
	Line, Col uint32
}

// Version is a PTX ISA version, such as 9.0.
type Version struct {
	Major, Minor int
}

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Module is one PTX source file.
type Module struct {
	Version     Version
	Target      []string // names in the .target directive: an architecture ("sm_90", "sm_90a"), then options ("debug")
	AddressSize int      // bits, 32 or 64; 0 when the module has no .address_size directive (32 by default, §11.1.3)
	Items       []Item   // everything after the header, in order
	Warnings    []*Error // from Parse, such as a newer version; not printed
}

// Item is a directive at module scope: *Func, *Var, *File, *Section, *Alias, *Pragma or *Target.
type Item interface {
	Position() Pos
	item()
}

// Stmt is a statement in a function's body: *Instr, *Label, *Var, *Block, *Loc, *File, *Pragma,
// *BranchTargets, *CallTargets or *CallPrototype.
type Stmt interface {
	Position() Pos
	stmt()
}

// Func is a kernel (.entry) or device function (.func), declared or defined.
type Func struct {
	Pos        Pos
	Entry      bool // a kernel
	Linking    Linking
	Attributes []Attribute
	Name       string
	Returns    []*Var      // a .func's return parameters, in Param or Reg space
	Params     []*Var      // in Param space; a .func's may be in Reg space
	Directives []Directive // performance-tuning and ABI directives between the parameters and the body
	Body       *Block      // nil for a declaration without a body
}

// Directive returns the first of f's directives called name (without its dot, "maxntid").
func (f *Func) Directive(name string) (Directive, bool) {
	for _, d := range f.Directives {
		if d.Name == name {
			return d, true
		}
	}
	return Directive{}, false
}

// Directive is a performance-tuning or ABI directive of a function: .maxntid, .reqntid,
// .minnctapersm, .maxnreg, .maxclusterrank, .reqnctapercluster, .explicitcluster, .noreturn,
// .abi_preserve, .pragma and whatever comes next.
type Directive struct {
	Pos  Pos
	Name string   // without the dot
	Args []int64  // numbers, in order
	Text []string // strings, as written between their quotes: .pragma's
}

// Attribute is one element of a .attribute(…) list: managed, or unified with its two numbers.
type Attribute struct {
	Name string // without the dot
	Args []uint64
}

// Var is one declared variable, register or parameter. A declaration of several names is several
// Vars.
type Var struct {
	Pos        Pos
	Linking    Linking
	Space      Space
	Attributes []Attribute
	Align      int  // bytes as written; 0 means the type's natural alignment
	Vector     int  // 2, 4 or 8 for .v2, .v4, .v8; 0 for a scalar
	Type       Type // of an element
	Name       string
	Count      int     // registers written name<Count> stand for name0 … name(Count-1); 0 for a plain name
	Dims       []int64 // array dimensions, outermost first; Unsized for an empty pair of brackets
	Ptr        *Ptr    // a kernel pointer parameter's .ptr attribute, or nil
	Init       *Init   // nil without an initializer
}

// Unsized is the dimension of an array declared with empty brackets. With an initializer the array
// is as long as that (see [Var.Len]); others are .extern arrays in dynamic shared memory, or
// variadic parameters.
const Unsized int64 = -1

// Ptr is a kernel parameter's .ptr attribute: the pointer's state space, and its target's
// alignment.
type Ptr struct {
	Space Space // Const, Global, Local or Shared; NoSpace means generic
	Align int   // bytes; 0 when not given
}

// Block is a scope in braces: a function's body, or a nested block. Names declared in it, including
// labels, end with it.
type Block struct {
	Pos   Pos // of the opening brace
	Stmts []Stmt
	End   Pos // of the closing brace
}

// Label marks a position in a function. It belongs to its block.
type Label struct {
	Pos  Pos
	Name string
}

// Loc is a .loc directive: the source line that the following instructions come from.
type Loc struct {
	Pos             Pos
	File, Line, Col int
	Inlined         *Inlined // nil unless the code was inlined
}

// Inlined is the tail of a .loc: the function that was inlined, and where.
type Inlined struct {
	Function        string // label in .debug_str of the function's name
	Offset          int64  // added to that label
	File, Line, Col int    // inlined_at
}

// File is a .file directive: a number for a source file's name.
type File struct {
	Pos   Pos
	Index int
	Name  string   // as written between its quotes
	Extra []uint64 // time stamp and size, where given
}

// Pragma is a .pragma directive.
type Pragma struct {
	Pos  Pos
	Text []string // as written between their quotes
}

// Target is a .target directive after the module's first.
type Target struct {
	Pos   Pos
	Names []string
}

// Alias is a .alias directive: Name is another name of function Of.
type Alias struct {
	Pos      Pos
	Name, Of string
}

// Section is a .section directive with DWARF data, kept as text: its lines are data directives
// (.b8, .b32, …) and labels, which Parse checks and which don't matter for execution.
type Section struct {
	Pos  Pos
	Name string // with its leading dot, ".debug_info"
	Raw  string // the text between the braces
}

// BranchTargets is a .branchtargets directive: the labels that a brx.idx chooses from.
type BranchTargets struct {
	Pos    Pos
	Name   string // the label before the directive
	Labels []string
	Syms   []*Symbol // the labels, bound by Resolve
}

// CallTargets is a .calltargets directive: the functions that an indirect call may reach.
type CallTargets struct {
	Pos   Pos
	Name  string
	Funcs []string
}

// CallPrototype is a .callprototype directive: the signature of an indirect call. Its parameters
// are often all called "_".
type CallPrototype struct {
	Pos        Pos
	Name       string // the label before the directive
	Returns    []*Var
	Params     []*Var
	Directives []Directive // .noreturn, .abi_preserve
}

// Pred is an instruction's guard, @p or @!p.
type Pred struct {
	Name string // the predicate register; "" when the instruction has no guard
	Not  bool   // @!p
	Sym  *Symbol
}

// Instr is one instruction.
type Instr struct {
	Pos       Pos
	Pred      Pred
	Opcode    string   // up to the first dot: "ld"
	Modifiers []string // without dots, "global", "shared::cta", "v4", "f32". Parse lets equal forms share one slice: replace it, don't write into it
	Operands  []Operand
}

// Guarded reports whether the instruction has a guard predicate.
func (i *Instr) Guarded() bool { return i.Pred.Name != "" }

// Has reports whether mod (without its dot) is among the instruction's modifiers.
func (i *Instr) Has(mod string) bool {
	for _, m := range i.Modifiers {
		if m == mod {
			return true
		}
	}
	return false
}

// Form returns opcode and modifiers as written: "ld.global.v4.f32".
func (i *Instr) Form() string {
	if len(i.Modifiers) == 0 {
		return i.Opcode
	}
	n := len(i.Opcode)
	for _, m := range i.Modifiers {
		n += 1 + len(m)
	}
	b := append(make([]byte, 0, n), i.Opcode...)
	for _, m := range i.Modifiers {
		b = append(append(b, '.'), m...)
	}
	return string(b)
}

// Position implements Item.
func (f *Func) Position() Pos { return f.Pos }

// Position implements Item and Stmt.
func (v *Var) Position() Pos { return v.Pos }

// Position implements Item and Stmt.
func (f *File) Position() Pos { return f.Pos }

// Position implements Item.
func (s *Section) Position() Pos { return s.Pos }

// Position implements Item.
func (a *Alias) Position() Pos { return a.Pos }

// Position implements Item and Stmt.
func (p *Pragma) Position() Pos { return p.Pos }

// Position implements Item.
func (t *Target) Position() Pos { return t.Pos }

// Position implements Stmt.
func (i *Instr) Position() Pos { return i.Pos }

// Position implements Stmt.
func (l *Label) Position() Pos { return l.Pos }

// Position implements Stmt.
func (b *Block) Position() Pos { return b.Pos }

// Position implements Stmt.
func (l *Loc) Position() Pos { return l.Pos }

// Position implements Stmt.
func (b *BranchTargets) Position() Pos { return b.Pos }

// Position implements Stmt.
func (c *CallTargets) Position() Pos { return c.Pos }

// Position implements Stmt.
func (c *CallPrototype) Position() Pos { return c.Pos }

func (*Func) item()    {}
func (*Var) item()     {}
func (*File) item()    {}
func (*Section) item() {}
func (*Alias) item()   {}
func (*Pragma) item()  {}
func (*Target) item()  {}

func (*Instr) stmt()         {}
func (*Label) stmt()         {}
func (*Var) stmt()           {}
func (*Block) stmt()         {}
func (*Loc) stmt()           {}
func (*File) stmt()          {}
func (*Pragma) stmt()        {}
func (*BranchTargets) stmt() {}
func (*CallTargets) stmt()   {}
func (*CallPrototype) stmt() {}
