package ptx

import (
	"context"
	"fmt"
)

// Parse reads a module under the default bounds. The error, if any, is of type [Errors].
func Parse(src string) (*Module, error) { return Options{}.Parse(src) }

// Parse reads a module within the bounds of o. The error, if any, is of type [Errors], and there is
// no module then.
func (o Options) Parse(src string) (*Module, error) { return o.ParseContext(context.Background(), src) }

// ParseContext is Parse with a context; if ctx ends, the error is ctx's.
func (o Options) ParseContext(ctx context.Context, src string) (*Module, error) {
	o = o.withDefaults()
	if len(src) > o.MaxBytes {
		return nil, Errors{{Msg: fmt.Sprintf("source of %d bytes is larger than the limit of %d", len(src), o.MaxBytes)}}
	}
	p := &parser{scanner: newScanner(src), ctx: ctx, opts: o, forms: map[string]form{}}
	m := p.module()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("parse %d bytes of PTX: %w", len(src), err)
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return m, nil
}

// parser builds the tree by recursive descent. Its methods read one construct each, with the space
// that follows, and return false after recording an error; a caller that can recover does.
type parser struct {
	scanner
	ctx        context.Context
	opts       Options
	errs       Errors
	warnings   []*Error
	depth      int
	statements int
	pushed     int  // operands so far
	given      bool // parsing has stopped at a limit
	forms      map[string]form
	names      regNames

	// Stacks on which lists of unknown length grow before they are copied at their exact length.
	operandStack []Operand
	stmtStack    []Stmt

	instrs   slab[Instr]
	operands slab[Operand]
	labels   slab[Label]
	vars     slab[Var]
	locs     slab[Loc]
	stmts    slab[Stmt]
	strings  slab[string]
}

// form is an opcode with its modifiers, split once for all instructions that share it.
type form struct {
	opcode    string
	modifiers []string
}

// fail records an error at the cursor. It always returns false.
func (p *parser) fail(msg string) bool { return p.failAt(p.here(), msg) }

// failAt records an error at pos. It always returns false.
func (p *parser) failAt(pos Pos, msg string) bool { return p.note(&Error{Pos: pos, Msg: msg}) }

// want records that something else was expected at the cursor. It always returns false.
func (p *parser) want(what string) bool {
	return p.note(&Error{Pos: p.here(), Want: what, Got: p.found()})
}

func (p *parser) note(e *Error) bool {
	if p.given {
		return false
	}
	p.errs = append(p.errs, e)
	if len(p.errs) >= p.opts.MaxErrors {
		p.giveUp()
	}
	return false
}

// exceed records that a limit is exceeded and ends the parse.
func (p *parser) exceed(msg string) bool {
	p.fail(msg)
	p.giveUp()
	return false
}

// giveUp moves to the end of the source, so that every loop ends.
func (p *parser) giveUp() {
	p.given = true
	p.pos = len(p.src)
}

// warn records a warning.
func (p *parser) warn(pos Pos, msg string) {
	if len(p.warnings) < p.opts.MaxWarnings {
		p.warnings = append(p.warnings, &Error{Pos: pos, Msg: msg})
	}
}

// enter enters one level of nesting; leave leaves it.
func (p *parser) enter() bool {
	if p.depth >= p.opts.MaxDepth {
		return p.exceed(fmt.Sprintf("nested deeper than the limit of %d", p.opts.MaxDepth))
	}
	p.depth++
	return true
}

func (p *parser) leave() { p.depth-- }

// contextInterval is the number of statements between two checks of the context: much less than a
// millisecond of work.
const contextInterval = 1024

// count counts a statement or directive against the limit.
func (p *parser) count() bool {
	p.statements++
	if p.statements%contextInterval == 0 && p.ctx.Err() != nil {
		p.giveUp()
		return false
	}
	if p.statements > p.opts.MaxStatements {
		return p.exceed(fmt.Sprintf("more statements than the limit of %d", p.opts.MaxStatements))
	}
	return true
}

// expect reads the byte c and the space that follows, or records an error.
func (p *parser) expect(c byte) bool {
	return p.accept(c) || p.want(quoted(string(c)))
}

// ident reads a name and the space that follows, or records an error.
func (p *parser) ident(what string) (string, bool) {
	name := p.name()
	if name == "" {
		return "", p.want(what)
	}
	p.skip()
	return name, true
}

// integer reads a constant expression whose value must be an integer from least to most.
func (p *parser) integer(what string, least, most int64) (int64, bool) {
	at := p.here()
	if class[p.peek()]&isDigit == 0 && p.peek() != '(' && p.peek() != '-' && !p.atWarpSize() {
		return 0, p.want(what)
	}
	n, ok := p.expr()
	if !ok {
		return 0, false
	}
	v := int64(n.bits)
	if n.imm != ImmInt || v < least || v > most || n.unsigned && v < 0 {
		return 0, p.failAt(at, fmt.Sprintf("%s must be an integer from %d to %d", what, least, most))
	}
	return v, true
}

// quotedShort is quoted for text of any length.
func quotedShort(text string) string {
	if len(text) > 48 {
		text = text[:48] + "…"
	}
	return quoted(text)
}

// module reads the whole source.
func (p *parser) module() *Module {
	m := &Module{}
	p.skip()
	if !p.header(m) {
		return m
	}
	for !p.atEnd() {
		if !p.count() {
			break
		}
		switch at := p.pos; {
		case p.item(m):
		case p.pos == at:
			p.recoverItem(true)
		default:
			p.recoverItem(false)
		}
	}
	m.Warnings = p.warnings
	return m
}

// header reads .version, .target and .address_size.
func (p *parser) header(m *Module) bool {
	at := p.here()
	if p.peekWord() != "version" {
		return p.want(".version at the start of the module")
	}
	p.word()
	p.skip()
	var ok bool
	if m.Version, ok = p.version(); !ok {
		return false
	}
	if Newest.Less(m.Version) {
		p.warn(at, fmt.Sprintf("PTX ISA version %d.%d is newer than %d.%d, the newest known",
			m.Version.Major, m.Version.Minor, Newest.Major, Newest.Minor))
	}
	if p.peekWord() != "target" {
		return p.want(".target after .version")
	}
	p.word()
	p.skip()
	if m.Target, ok = p.targets(); !ok {
		return false
	}
	if p.peekWord() == "address_size" {
		p.word()
		p.skip()
		at := p.here()
		size, ok := p.integer("an address size of 32 or 64", 32, 64)
		if !ok {
			return false
		}
		if size != 32 && size != 64 {
			return p.failAt(at, "an address size of 32 or 64 is required")
		}
		m.AddressSize = int(size)
	}
	return true
}

// version reads major.minor.
func (p *parser) version() (Version, bool) {
	at := p.here()
	text := p.number()
	p.skip()
	var v Version
	part := &v.Major
	seen := false // digits in this part
	for _, c := range []byte(text) {
		switch {
		case c == '.' && part == &v.Major && seen:
			part, seen = &v.Minor, false
		case c >= '0' && c <= '9' && *part < 1000:
			*part = *part*10 + int(c-'0')
			seen = true
		default:
			return v, p.failAt(at, "malformed version "+quotedShort(text))
		}
	}
	if part != &v.Minor || !seen {
		return v, p.note(&Error{Pos: at, Want: "a version such as 9.0", Got: quotedShort(text)})
	}
	return v, true
}

// targets reads the names after .target.
func (p *parser) targets() ([]string, bool) {
	var names []string
	for {
		name, ok := p.ident("a target such as sm_90")
		if !ok {
			return nil, false
		}
		if len(names) == maxNames {
			return nil, p.fail("too many targets")
		}
		names = append(names, name)
		if !p.accept(',') {
			return names, true
		}
	}
}

// maxNames bounds the small lists of directives: targets, attributes, numbers, strings.
const maxNames = 64

// recoverItem moves, after an error, to where the next directive at module scope may begin. A
// parser that is stuck, because it has not moved, first skips a byte.
func (p *parser) recoverItem(stuck bool) {
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
		case c == '"':
			if _, ok := p.str(); !ok {
				p.skipLine()
			}
			continue
		case c == '{':
			depth++
		case c == '}':
			depth--
			if depth <= 0 {
				p.accept('}')
				return
			}
		case c == ';' && depth <= 0:
			p.accept(';')
			return
		case c == '.' && depth <= 0 && startsItem[p.peekWord()]:
			return
		}
		p.advance(min(p.pos+1, len(p.src)))
	}
}

// startsItem holds the words with which directives at module scope begin, except state spaces,
// which also occur within functions and parameter lists.
var startsItem = map[string]bool{
	"extern": true, "visible": true, "weak": true, "common": true, "entry": true, "func": true, "file": true,
	"section": true, "alias": true, "target": true, "version": true,
}
