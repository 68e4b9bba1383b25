package ptx

import "math"

// item reads one directive at module scope.
func (p *parser) item(m *Module) bool {
	at := p.here()
	switch c := p.peek(); {
	case c == ';':
		return p.accept(';') // a function's declaration may end on a line of its own, or twice
	case c == '@' && p.peekAt(1) == '@':
		return p.dwarfLine()
	case c != '.':
		return p.want("a directive")
	}
	w := p.peekWord()
	linking := Internal
	for l := Extern; l <= Common; l++ {
		if w == linkingNames[l] {
			p.word()
			p.skip()
			linking, w = l, p.peekWord()
			break
		}
	}
	var attributes []Attribute
	if w == "attribute" { // some compilers emit it before .func or a state space, others after it
		var ok bool
		if attributes, ok = p.attributes(nil); !ok {
			return false
		}
		w = p.peekWord()
	}
	switch w {
	case "entry", "func":
		f := &Func{Pos: at, Entry: w == "entry", Linking: linking, Attributes: attributes}
		if !p.function(f) {
			return false
		}
		m.Items = append(m.Items, f)
		return true
	}
	if isVariableSpace(w) {
		first := Var{Pos: at, Linking: linking, Attributes: attributes}
		return p.variables(first, func(v *Var) { m.Items = append(m.Items, v) })
	}
	if linking != Internal || attributes != nil {
		return p.want("a function or variable")
	}
	return p.plainItem(m, w, at)
}

// plainItem reads a directive that takes no linking or attributes.
func (p *parser) plainItem(m *Module, w string, at Pos) bool {
	switch w {
	case "file":
		f, ok := p.file()
		if ok {
			m.Items = append(m.Items, f)
		}
		return ok
	case "section":
		s, ok := p.section()
		if ok {
			m.Items = append(m.Items, s)
		}
		return ok
	case "pragma":
		pr, ok := p.pragma()
		if ok {
			m.Items = append(m.Items, pr)
		}
		return ok
	case "alias":
		p.word()
		p.skip()
		a := &Alias{Pos: at}
		var ok bool
		if a.Name, ok = p.ident("an alias' name"); !ok || !p.expect(',') {
			return false
		}
		if a.Of, ok = p.ident("the name of a function"); !ok {
			return false
		}
		m.Items = append(m.Items, a)
		return p.expect(';')
	case "target":
		p.word()
		p.skip()
		names, ok := p.targets()
		m.Items = append(m.Items, &Target{Pos: at, Names: names})
		return ok
	case "version":
		p.word()
		p.skip()
		v, ok := p.version()
		if ok && v != m.Version {
			return p.failAt(at, "a second .version that differs from the first")
		}
		return ok
	case "address_size":
		p.word()
		p.skip()
		v, ok := p.integer("an address size of 32 or 64", 32, 64)
		if ok && int(v) != m.AddressSize {
			return p.failAt(at, "an .address_size that differs from the first")
		}
		return ok
	}
	return p.want("a directive of module scope")
}

// dwarfLine skips a line of debug data in the style of PTX before 2.0.
func (p *parser) dwarfLine() bool {
	p.warn(p.here(), "@@DWARF line ignored")
	p.skipLine()
	p.skip()
	return true
}

// attributes reads .attribute(…) and appends to list.
func (p *parser) attributes(list []Attribute) ([]Attribute, bool) {
	p.word()
	p.skip()
	if !p.expect('(') {
		return nil, false
	}
	for {
		a := Attribute{Name: p.word()}
		if a.Name == "" {
			return nil, p.want("an attribute such as .managed")
		}
		p.skip()
		if p.accept('(') {
			for {
				n, ok := p.expr()
				if !ok {
					return nil, false
				}
				if len(a.Args) == maxNames {
					return nil, p.fail("too many arguments of an attribute")
				}
				a.Args = append(a.Args, n.bits)
				if !p.accept(',') {
					break
				}
			}
			if !p.expect(')') {
				return nil, false
			}
		}
		if len(list) == maxNames {
			return nil, p.fail("too many attributes")
		}
		list = append(list, a)
		if !p.accept(',') {
			return list, p.expect(')')
		}
	}
}

// file reads a .file directive: index "name"{, time, size}.
func (p *parser) file() (*File, bool) {
	f := &File{Pos: p.here()}
	p.word()
	p.skip()
	n, ok := p.integer("a file number", 0, math.MaxInt32)
	if !ok {
		return nil, false
	}
	f.Index = int(n)
	if f.Name, ok = p.str(); !ok {
		return nil, p.want("a file name in double quotes")
	}
	p.skip()
	for p.accept(',') {
		n, ok := p.expr()
		if !ok {
			return nil, false
		}
		if len(f.Extra) == 2 {
			return nil, p.fail("too many numbers in a .file directive")
		}
		f.Extra = append(f.Extra, n.bits)
	}
	return f, true
}

// pragma reads a .pragma directive.
func (p *parser) pragma() (*Pragma, bool) {
	pr := &Pragma{Pos: p.here()}
	p.word()
	p.skip()
	var ok bool
	if pr.Text, ok = p.quotedList(); !ok {
		return nil, false
	}
	return pr, p.expect(';')
}

// quotedList reads strings with commas between them.
func (p *parser) quotedList() ([]string, bool) {
	var list []string
	for {
		s, ok := p.str()
		if !ok {
			return nil, p.want("a string in double quotes")
		}
		if len(list) == maxNames {
			return nil, p.fail("too many strings")
		}
		list = append(list, s)
		p.skip()
		if !p.accept(',') {
			return list, true
		}
	}
}

// section reads a .section directive. Its lines don't matter for execution: each is checked to be a
// label or data, and all are kept as text.
func (p *parser) section() (*Section, bool) {
	s := &Section{Pos: p.here()}
	p.word()
	p.skip()
	name := p.word()
	if name == "" {
		return nil, p.want("a section's name such as .debug_info")
	}
	s.Name = "." + name
	p.skip()
	if !p.expect('{') {
		return nil, false
	}
	start := p.pos
	for p.peek() != '}' {
		if !p.sectionLine() {
			return nil, false
		}
	}
	s.Raw = trimSpace(p.src[start:p.pos])
	return s, p.expect('}')
}

// sectionLine reads a label, or a width and the values of that width.
func (p *parser) sectionLine() bool {
	if name := p.name(); name != "" {
		p.skip()
		return p.expect(':')
	}
	switch p.peekWord() {
	case "b8", "b16", "b32", "b64":
		p.word()
	default:
		return p.want("a label, .b8, .b16, .b32, .b64 or '}'")
	}
	p.skip()
	for {
		if !p.sectionValue() {
			return false
		}
		if !p.accept(',') {
			p.accept(';')
			return true
		}
	}
}

// sectionValue reads a number, or sums and differences of labels, sections and numbers.
func (p *parser) sectionValue() bool {
	p.accept('-')
	for {
		switch {
		case p.name() != "", p.word() != "":
			// LLVM replaces the dots in variables' names, but not here.
			for p.peek() == '.' && p.word() != "" {
			}
		case class[p.peek()]&isDigit != 0:
			at := p.here()
			text := p.number()
			if _, ok := literal(text); !ok {
				return p.failAt(at, "malformed number "+quotedShort(text))
			}
		default:
			return p.want("a number, label or section")
		}
		p.skip()
		if !p.accept('+') && !p.accept('-') {
			return true
		}
	}
}

// trimSpace removes the space at both ends of s, except the newline that a line comment at its end
// needs.
func trimSpace(s string) string {
	for s != "" && (class[s[0]]&isBlank != 0 || s[0] == '\n') {
		s = s[1:]
	}
	for s != "" && (class[s[len(s)-1]]&isBlank != 0 || s[len(s)-1] == '\n') {
		s = s[:len(s)-1]
	}
	return s
}
