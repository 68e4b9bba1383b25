package ptx

import "math"

// function reads a kernel or function from .entry or .func on. Its body, or the lack of one, ends
// it; the semicolon of a declaration is an item of its own to the caller.
func (p *parser) function(f *Func) bool {
	p.word()
	p.skip()
	p.names.open()
	defer p.names.close()
	var ok bool
	for p.peek() == '.' && !endsPrototype(p.peekWord()) {
		if p.peekWord() == "attribute" {
			if f.Attributes, ok = p.attributes(f.Attributes); !ok {
				return false
			}
		} else if !p.directive(&f.Directives) {
			return false
		}
	}
	if !f.Entry && p.peek() == '(' {
		if f.Returns, ok = p.params(); !ok {
			return false
		}
	}
	if f.Name, ok = p.ident("a function's name"); !ok {
		return false
	}
	if p.peek() == '(' {
		if f.Params, ok = p.params(); !ok {
			return false
		}
	}
	for _, v := range f.Returns {
		p.names.declare(v)
	}
	for _, v := range f.Params {
		p.names.declare(v)
	}
	for p.peek() == '.' && !endsPrototype(p.peekWord()) {
		if !p.directive(&f.Directives) {
			return false
		}
	}
	if p.peek() == '{' {
		f.Body, ok = p.block()
		return ok
	}
	if p.accept(';') || p.atEnd() || p.peek() == '.' {
		return true
	}
	return p.want("'{', ';' or a directive")
}

// endsPrototype reports whether w begins the next item, so that a declaration without a semicolon
// ends before it.
func endsPrototype(w string) bool { return startsItem[w] || isVariableSpace(w) }

// directive reads one performance-tuning or ABI directive: a word, and numbers or strings with
// commas between them.
func (p *parser) directive(list *[]Directive) bool {
	d := Directive{Pos: p.here(), Name: p.word()}
	if d.Name == "" {
		return p.want("a directive")
	}
	p.skip()
	if p.peek() == '"' {
		var ok bool
		if d.Text, ok = p.quotedList(); !ok {
			return false
		}
		p.accept(';')
	}
	for class[p.peek()]&isDigit != 0 {
		n, ok := p.integer("a number", 0, math.MaxInt64)
		if !ok {
			return false
		}
		if len(d.Args) == maxNames {
			return p.fail("too many numbers")
		}
		d.Args = append(d.Args, n)
		if !p.accept(',') {
			break
		}
	}
	if len(*list) == maxNames {
		return p.fail("too many directives")
	}
	*list = append(*list, d)
	return true
}

// prototype reads the rest of a .callprototype: {(returns)} _ {(params)} {directives} ;
func (p *parser) prototype(c *CallPrototype) bool {
	var ok bool
	if p.peek() == '(' {
		if c.Returns, ok = p.params(); !ok {
			return false
		}
	}
	if _, ok = p.ident("'_'"); !ok {
		return false
	}
	if p.peek() == '(' {
		if c.Params, ok = p.params(); !ok {
			return false
		}
	}
	for p.peek() == '.' && !endsPrototype(p.peekWord()) {
		if !p.directive(&c.Directives) {
			return false
		}
	}
	return p.expect(';')
}
