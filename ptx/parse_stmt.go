package ptx

import "math"

// block reads a scope in braces.
func (p *parser) block() (*Block, bool) {
	b := &Block{Pos: p.here()}
	if !p.expect('{') || !p.enter() {
		return nil, false
	}
	defer p.leave()
	p.names.open()
	defer p.names.close()
	base := len(p.stmtStack)
	for p.peek() != '}' {
		if p.atEnd() {
			p.want("'}'")
			break
		}
		if !p.count() {
			break
		}
		at := p.pos
		if !p.statement() {
			p.recoverStatement(p.pos == at)
		}
	}
	b.Stmts = p.stmts.keep(p.stmtStack[base:])
	clear(p.stmtStack[base:])
	p.stmtStack = p.stmtStack[:base]
	b.End = p.here()
	return b, p.accept('}')
}

// add adds a statement to the innermost block.
func (p *parser) add(s Stmt) { p.stmtStack = append(p.stmtStack, s) }

// recoverStatement moves past the semicolon that ends an invalid statement, or to the brace that
// ends its block.
func (p *parser) recoverStatement(stuck bool) {
	if p.given {
		return
	}
	if stuck {
		p.advance(min(p.pos+1, len(p.src)))
	}
	for depth := 0; ; {
		p.skip()
		switch c := p.peek(); {
		case p.atEnd():
			return
		case c == ';' && depth == 0:
			p.accept(';')
			return
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return
		case c == '}':
			depth--
		case c == '"':
			if _, ok := p.str(); !ok {
				p.skipLine()
			}
			continue
		case c == '.' && (p.peekWord() == "entry" || p.peekWord() == "visible"):
			p.pos = len(p.src) // a brace is missing, so the rest would only be misread
			return
		}
		p.advance(min(p.pos+1, len(p.src)))
	}
}

// statement reads one statement and adds it to the block.
func (p *parser) statement() bool {
	switch c := p.peek(); c {
	case ';':
		return p.accept(';')
	case '{':
		b, ok := p.block()
		if ok {
			p.add(b)
		}
		return ok
	case '.':
		return p.statementDirective()
	case '@':
		if p.peekAt(1) == '@' {
			return p.dwarfLine()
		}
		return p.instruction()
	}
	if p.labelAhead() {
		return p.label()
	}
	return p.instruction()
}

// labelAhead reports whether a name and a colon are at the cursor.
func (p *parser) labelAhead() bool {
	i := p.pos
	for i < len(p.src) && (class[p.src[i]]&isIdent != 0 || p.src[i] == '%') {
		i++
	}
	if i == p.pos || i == len(p.src) {
		return false
	}
	switch c := p.src[i]; {
	case c == ':':
		return i+1 == len(p.src) || p.src[i+1] != ':'
	case class[c]&isBlank == 0 && c != '\n' && c != '/':
		return false
	}
	at := p.scanner
	p.pos = i
	p.skip()
	is := p.peek() == ':' && p.peekAt(1) != ':'
	p.scanner = at
	return is
}

// label reads a label, or the directive that a label names.
func (p *parser) label() bool {
	at := p.here()
	name, ok := p.ident("a label")
	if !ok || !p.expect(':') {
		return false
	}
	if p.peek() == '.' {
		switch p.peekWord() {
		case "branchtargets":
			p.word()
			p.skip()
			b := &BranchTargets{Pos: at, Name: name}
			if b.Labels, ok = p.nameList(); !ok {
				return false
			}
			p.add(b)
			return p.expect(';')
		case "calltargets":
			p.word()
			p.skip()
			c := &CallTargets{Pos: at, Name: name}
			if c.Funcs, ok = p.nameList(); !ok {
				return false
			}
			p.add(c)
			return p.expect(';')
		case "callprototype":
			p.word()
			p.skip()
			c := &CallPrototype{Pos: at, Name: name}
			if !p.prototype(c) {
				return false
			}
			p.add(c)
			return true
		}
	}
	l := p.labels.one()
	l.Pos, l.Name = at, name
	p.add(l)
	return true
}

// nameList reads names with commas between them.
func (p *parser) nameList() ([]string, bool) {
	var list []string
	for {
		name, ok := p.ident("a name")
		if !ok || !p.count() {
			return nil, false
		}
		list = append(list, name)
		if !p.accept(',') {
			return list, true
		}
	}
}

// statementDirective reads a statement that begins with a dot.
func (p *parser) statementDirective() bool {
	at := p.here()
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
	if isVariableSpace(w) {
		return p.variables(Var{Pos: at, Linking: linking}, func(v *Var) { p.add(v) })
	}
	if linking != Internal {
		return p.want("a variable")
	}
	switch w {
	case "loc":
		return p.loc()
	case "file":
		f, ok := p.file()
		if ok {
			p.add(f)
		}
		return ok
	case "pragma":
		pr, ok := p.pragma()
		if ok {
			p.add(pr)
		}
		return ok
	}
	return p.want("a statement")
}

// loc reads a .loc directive: file line column {, function_name label{+offset}, inlined_at file
// line column}. It ends with its line.
func (p *parser) loc() bool {
	l := p.locs.one()
	l.Pos = p.here()
	p.word()
	p.skip()
	if !p.fileLine(&l.File, &l.Line, &l.Col) {
		return false
	}
	if p.accept(',') {
		in := &Inlined{}
		l.Inlined = in
		if !p.keyword("function_name") {
			return p.want("function_name")
		}
		var ok bool
		if in.Function, ok = p.ident("a label"); !ok {
			return false
		}
		if p.accept('+') {
			if in.Offset, ok = p.integer("an offset", 0, math.MaxInt64); !ok {
				return false
			}
		}
		if !p.expect(',') {
			return false
		}
		if !p.keyword("inlined_at") {
			return p.want("inlined_at")
		}
		if !p.fileLine(&in.File, &in.Line, &in.Col) {
			return false
		}
	}
	p.accept(';')
	p.add(l)
	return true
}

// fileLine reads the three numbers of a source position. They are no expressions: what follows may
// look like an operator.
func (p *parser) fileLine(file, line, col *int) bool {
	for _, field := range []*int{file, line, col} {
		at := p.here()
		text := p.number()
		if text == "" {
			return p.want("a number")
		}
		n, ok := literal(text)
		if !ok || n.imm != ImmInt || n.bits > math.MaxInt32 {
			return p.failAt(at, "malformed number "+quotedShort(text))
		}
		*field = int(n.bits)
		p.skip()
	}
	return true
}
