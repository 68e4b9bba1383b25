package ptx

import "strconv"

// String returns m as PTX in one canonical layout: one statement per line, one variable per
// declaration, floating-point constants by their bits. Comments are not part of the tree and are
// lost.
func (m *Module) String() string {
	p := &printer{}
	p.module(m)
	return string(p.buf)
}

// String returns the instruction as PTX on one line, with its semicolon.
func (i *Instr) String() string {
	p := &printer{}
	p.instr(i)
	return string(p.buf)
}

// String returns the operand as PTX writes it.
func (o Operand) String() string {
	p := &printer{}
	p.operand(&o)
	return string(p.buf)
}

// printer collects text in buf.
type printer struct {
	buf   []byte
	level int // of indentation
}

func (p *printer) str(s string) { p.buf = append(p.buf, s...) }

func (p *printer) byte(b byte) { p.buf = append(p.buf, b) }

func (p *printer) int(v int64) { p.buf = strconv.AppendInt(p.buf, v, 10) }

// dot writes a word after a dot.
func (p *printer) dot(w string) {
	p.byte('.')
	p.str(w)
}

// comma separates the elements of a list: it writes ", " before all but the first.
func (p *printer) comma(i int) {
	if i > 0 {
		p.str(", ")
	}
}

// line ends a line.
func (p *printer) line() { p.byte('\n') }

func (p *printer) indent() {
	for range p.level {
		p.byte('\t')
	}
}

func (p *printer) module(m *Module) {
	p.str(".version ")
	p.int(int64(m.Version.Major))
	p.byte('.')
	p.int(int64(m.Version.Minor))
	p.line()
	p.target(m.Target)
	if m.AddressSize != 0 {
		p.str(".address_size ")
		p.int(int64(m.AddressSize))
		p.line()
	}
	for _, it := range m.Items {
		p.item(it)
	}
}

func (p *printer) item(it Item) {
	switch it := it.(type) {
	case *Func:
		p.line()
		p.function(it)
	case *Var:
		p.variable(it)
		p.str(";")
		p.line()
	case *File:
		p.file(it)
		p.line()
	case *Pragma:
		p.pragma(it.Text)
		p.line()
	case *Target:
		p.target(it.Names)
	case *Alias:
		p.str(".alias " + it.Name + ", " + it.Of + ";")
		p.line()
	case *Section:
		p.str(".section " + it.Name + "\n{\n")
		p.str(it.Raw)
		p.str("\n}")
		p.line()
	}
}

func (p *printer) target(names []string) {
	p.str(".target ")
	p.names(names)
	p.line()
}

func (p *printer) names(names []string) {
	for i, n := range names {
		p.comma(i)
		p.str(n)
	}
}

func (p *printer) file(f *File) {
	p.str(".file ")
	p.int(int64(f.Index))
	p.str(` "` + f.Name + `"`)
	for _, n := range f.Extra {
		p.str(", ")
		p.buf = strconv.AppendUint(p.buf, n, 10)
	}
}

func (p *printer) pragma(text []string) {
	p.str(".pragma ")
	for i, t := range text {
		p.comma(i)
		p.str(`"` + t + `"`)
	}
	p.byte(';')
}

func (p *printer) function(f *Func) {
	if f.Linking != Internal {
		p.dot(f.Linking.String())
		p.byte(' ')
	}
	if f.Entry {
		p.str(".entry ")
	} else {
		p.str(".func ")
	}
	p.attributes(f.Attributes)
	if len(f.Returns) > 0 {
		p.params(f.Returns, "")
		p.byte(' ')
	}
	p.str(f.Name)
	if len(f.Params) > 0 {
		p.params(f.Params, "\n\t")
	} else {
		p.str("()")
	}
	p.line()
	for _, d := range f.Directives {
		p.directive(d)
		p.line()
	}
	if f.Body == nil {
		p.str(";")
		p.line()
		return
	}
	p.block(f.Body)
}

// params writes a list of parameters, each after sep.
func (p *printer) params(list []*Var, sep string) {
	p.byte('(')
	for i, v := range list {
		switch {
		case i > 0 && sep == "":
			p.str(", ")
		case i > 0:
			p.byte(',')
		}
		p.str(sep)
		p.variable(v)
	}
	if sep != "" {
		p.byte('\n')
	}
	p.byte(')')
}

func (p *printer) attributes(list []Attribute) {
	if len(list) == 0 {
		return
	}
	p.str(".attribute(")
	for i, a := range list {
		p.comma(i)
		p.dot(a.Name)
		for j, n := range a.Args {
			if j == 0 {
				p.byte('(')
			}
			p.comma(j)
			p.buf = strconv.AppendUint(p.buf, n, 10)
			if j == len(a.Args)-1 {
				p.byte(')')
			}
		}
	}
	p.str(") ")
}

func (p *printer) directive(d Directive) {
	if d.Name == "pragma" {
		p.pragma(d.Text)
		return
	}
	p.dot(d.Name)
	for i, n := range d.Args {
		if i == 0 {
			p.byte(' ')
		}
		p.comma(i)
		p.int(n)
	}
	for i, t := range d.Text {
		if i == 0 {
			p.byte(' ')
		}
		p.comma(i)
		p.str(`"` + t + `"`)
	}
}

// variable writes a declaration without its semicolon.
func (p *printer) variable(v *Var) {
	if v.Linking != Internal {
		p.dot(v.Linking.String())
		p.byte(' ')
	}
	p.dot(v.Space.String())
	p.byte(' ')
	p.attributes(v.Attributes)
	if v.Align > 0 {
		p.str(".align ")
		p.int(int64(v.Align))
		p.byte(' ')
	}
	if v.Vector > 0 {
		p.str(".v")
		p.int(int64(v.Vector))
		p.byte(' ')
	}
	p.dot(v.Type.String())
	p.byte(' ')
	if v.Ptr != nil {
		p.str(".ptr ")
		if v.Ptr.Space != NoSpace {
			p.dot(v.Ptr.Space.String())
			p.byte(' ')
		}
		if v.Ptr.Align > 0 {
			p.str(".align ")
			p.int(int64(v.Ptr.Align))
			p.byte(' ')
		}
	}
	p.str(v.Name)
	if v.Count > 0 {
		p.byte('<')
		p.int(int64(v.Count))
		p.byte('>')
	}
	for _, d := range v.Dims {
		p.byte('[')
		if d != Unsized {
			p.int(d)
		}
		p.byte(']')
	}
	if v.Init != nil {
		p.str(" = ")
		p.str(v.Init.Raw)
	}
}

func (p *printer) block(b *Block) {
	p.indent()
	p.byte('{')
	p.line()
	p.level++
	for _, s := range b.Stmts {
		p.stmt(s)
		p.line()
	}
	p.level--
	p.indent()
	p.byte('}')
	if p.level == 0 {
		p.line()
	}
}

func (p *printer) stmt(s Stmt) {
	if b, ok := s.(*Block); ok {
		p.block(b)
		return
	}
	if l, ok := s.(*Label); ok {
		p.str(l.Name + ":")
		return
	}
	p.indent()
	switch s := s.(type) {
	case *Instr:
		p.instr(s)
	case *Var:
		p.variable(s)
		p.byte(';')
	case *Loc:
		p.loc(s)
	case *File:
		p.file(s)
	case *Pragma:
		p.pragma(s.Text)
	case *BranchTargets:
		p.str(s.Name + ": .branchtargets ")
		p.names(s.Labels)
		p.byte(';')
	case *CallTargets:
		p.str(s.Name + ": .calltargets ")
		p.names(s.Funcs)
		p.byte(';')
	case *CallPrototype:
		p.prototype(s)
	}
}

func (p *printer) prototype(c *CallPrototype) {
	p.str(c.Name + ": .callprototype ")
	if len(c.Returns) > 0 {
		p.params(c.Returns, "")
		p.byte(' ')
	}
	p.str("_ ")
	p.params(c.Params, "")
	for _, d := range c.Directives {
		p.byte(' ')
		p.directive(d)
	}
	p.byte(';')
}

func (p *printer) loc(l *Loc) {
	place := func(file, line, col int) {
		for _, n := range [...]int{file, line, col} {
			p.byte(' ')
			p.int(int64(n))
		}
	}
	p.str(".loc")
	place(l.File, l.Line, l.Col)
	if in := l.Inlined; in != nil {
		p.str(", function_name " + in.Function)
		if in.Offset != 0 {
			p.byte('+')
			p.int(in.Offset)
		}
		p.str(", inlined_at")
		place(in.File, in.Line, in.Col)
	}
}
