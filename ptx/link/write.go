package link

import (
	"slices"
	"strings"

	"vgpud/ptx"
)

// write puts what was reached into the result: declarations of functions, which may then refer to
// one another in any order, variables, and definitions of functions, in the order of the objects.
func (l *linker) write(out *ptx.Module) {
	l.nameAll()
	w := &writer{linker: l, out: out, files: map[string]int{}, placed: map[*symbol]placement{}}
	for _, o := range l.objects {
		for _, it := range o.module.Items {
			if f, ok := it.(*ptx.File); ok {
				w.file(o, f)
			}
		}
	}
	var functions, variables []*symbol
	for _, o := range l.objects {
		for _, it := range o.module.Items {
			s := o.symbols[itemName(it)]
			switch {
			case s == nil || !s.seen || s.alias != nil:
			case it == ptx.Item(s.fn):
				functions = append(functions, s)
			case it == ptx.Item(s.v):
				variables = append(variables, s)
			}
		}
	}
	for _, s := range functions {
		if !s.fn.Entry {
			decl := *s.fn
			decl.Name, decl.Body = s.as, nil
			out.Items = append(out.Items, &decl)
		}
	}
	for _, s := range variables {
		w.variable(s)
	}
	for _, s := range functions {
		if s.fn.Body != nil {
			w.object = s.object
			f := *s.fn
			f.Name, f.Body = s.as, w.block(s.fn.Body)
			out.Items = append(out.Items, &f)
		}
	}
}

// nameAll names what was reached. Names that are local to their objects give way.
func (l *linker) nameAll() {
	taken := map[string]bool{}
	for _, s := range l.reached {
		if !s.local() {
			s.as = s.name
			taken[s.name] = true
		}
	}
	var collide []*symbol
	for _, s := range l.reached {
		switch {
		case !s.local():
		case taken[s.name]:
			collide = append(collide, s)
		default:
			s.as = s.name
			taken[s.name] = true
		}
	}
	// A function that an alias refers to takes the alias's place, where its own name may be hidden.
	var aliased []*symbol
	for _, o := range l.objects {
		for _, it := range o.module.Items {
			if a, ok := it.(*ptx.Alias); ok {
				if s := o.symbols[a.Name].resolve(); s.seen && s.defined {
					aliased = append(aliased, s)
				}
			}
		}
	}
	if len(collide)+len(aliased) == 0 {
		return
	}
	n := newNamer(l.objects)
	for _, s := range aliased {
		if n.hidden(s.as) {
			s.as = n.vary(s.name)
		}
	}
	for _, s := range collide {
		s.as = n.vary(s.name)
	}
}

// writer writes the result.
type writer struct {
	*linker
	out    *ptx.Module
	object *object        // the one whose function is copied
	files  map[string]int // the new numbers of source files, by name
	placed map[*symbol]placement
}

// placement is how far a variable is written.
type placement uint8

const (
	opened   placement = iota + 1 // what it refers to is being written
	declared                      // declared ahead, for what refers to it in a circle
	written
)

// variable writes a variable behind those that its initializer refers to.
func (w *writer) variable(s *symbol) {
	// A chain of variables that refer to one another may be long, so the recursion is by hand.
	type frame struct {
		s    *symbol
		next int // in s.refs
	}
	if w.placed[s] != 0 {
		return
	}
	w.placed[s] = opened
	for stack := []frame{{s: s}}; len(stack) > 0; {
		top := &stack[len(stack)-1]
		if top.next < len(top.s.refs) {
			to := top.s.refs[top.next]
			top.next++
			switch {
			case to.v == nil || to.v.Space == ptx.SharedSpace:
			case w.placed[to] == 0:
				w.placed[to] = opened
				stack = append(stack, frame{s: to})
			case w.placed[to] == opened:
				decl := *to.v
				decl.Name, decl.Linking, decl.Init = to.as, ptx.Extern, nil
				if len(decl.Dims) > 0 && decl.Dims[0] == ptx.Unsized {
					decl.Dims = append([]int64{to.v.Len() / max(rowLen(to.v), 1)}, decl.Dims[1:]...)
				}
				w.out.Items = append(w.out.Items, &decl)
				w.placed[to] = declared
			}
			continue
		}
		v := *top.s.v
		v.Name, v.Align = top.s.as, max(v.Align, top.s.align)
		if w.placed[top.s] == declared && v.Linking == ptx.Internal {
			v.Linking = ptx.Visible // as its declaration ahead says
		}
		v.Init = w.initializer(top.s.object, &v)
		w.out.Items = append(w.out.Items, &v)
		w.placed[top.s] = written
		stack = stack[:len(stack)-1]
	}
}

// rowLen returns the number of elements of one row of an array, components of vectors included.
func rowLen(v *ptx.Var) int64 {
	n := int64(max(v.Vector, 1))
	for _, d := range v.Dims[1:] {
		n *= d
	}
	return n
}

// rename returns the name in the result of what an object calls name.
func (w *writer) rename(o *object, name string) string {
	if s := o.symbols[name]; s != nil {
		if as := s.resolve().as; as != "" {
			return as
		}
	}
	return name
}

// initializer returns a variable's initializer with names as in the result.
func (w *writer) initializer(o *object, v *ptx.Var) *ptx.Init {
	changes := false
	initializerNames(v, func(name string) { changes = changes || w.rename(o, name) != name })
	if !changes {
		return v.Init
	}
	var b strings.Builder
	raw := v.Init.Raw
	for i := 0; i < len(raw); {
		end := i
		for end < len(raw) && wordByte(raw[end]) {
			end++
		}
		if end == i {
			b.WriteByte(raw[i])
			i++
			continue
		}
		word := raw[i:end]
		// "generic(x)": a name that is called is no symbol. Numbers begin with a digit.
		if word[0] < '0' || word[0] > '9' {
			if rest := strings.TrimLeft(raw[end:], " \t\r\n"); !strings.HasPrefix(rest, "(") {
				word = w.rename(o, word)
			}
		}
		b.WriteString(word)
		i = end
	}
	return &ptx.Init{Pos: v.Init.Pos, Raw: b.String()}
}

// wordByte reports whether c may be part of a name or number.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '%'
}

// file numbers a source file of an object and declares it in the result, once by name.
func (w *writer) file(o *object, f *ptx.File) {
	n, ok := w.files[f.Name]
	if !ok {
		n = len(w.files) + 1
		w.files[f.Name] = n
		c := *f
		c.Index = n
		w.out.Items = append(w.out.Items, &c)
	}
	o.files[f.Index] = n
}

// block copies a block with names as in the result.
func (w *writer) block(b *ptx.Block) *ptx.Block {
	out := &ptx.Block{Pos: b.Pos, End: b.End, Stmts: make([]ptx.Stmt, 0, len(b.Stmts))}
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Block:
			out.Stmts = append(out.Stmts, w.block(s))
		case *ptx.Instr:
			out.Stmts = append(out.Stmts, w.instr(s))
		case *ptx.CallTargets:
			c := *s
			c.Funcs = slices.Clone(s.Funcs)
			for i, name := range c.Funcs {
				c.Funcs[i] = w.rename(w.object, name)
			}
			out.Stmts = append(out.Stmts, &c)
		case *ptx.Var:
			if s.Init == nil {
				out.Stmts = append(out.Stmts, s)
				break
			}
			v := *s
			v.Init = w.initializer(w.object, s)
			out.Stmts = append(out.Stmts, &v)
		case *ptx.File:
			w.file(w.object, s)
		case *ptx.Loc:
			c := *s
			c.Inlined = nil // it refers to a debug section
			if n, ok := w.object.files[s.File]; ok {
				c.File = n
				out.Stmts = append(out.Stmts, &c)
			}
		default:
			out.Stmts = append(out.Stmts, s)
		}
	}
	return out
}

// instr returns an instruction with names as in the result; the same one if none changes.
func (w *writer) instr(in *ptx.Instr) *ptx.Instr {
	if !w.renames(in.Operands) {
		return in
	}
	c := *in
	c.Operands = w.operands(in.Operands)
	return &c
}

// renames reports whether a name among operands changes.
func (w *writer) renames(list []ptx.Operand) (changes bool) {
	ptx.Walk(list, func(o *ptx.Operand) {
		if name := globalName(w.object, o.Sym); name != "" {
			changes = changes || w.rename(w.object, name) != o.Name
		}
	})
	return changes
}

func (w *writer) operands(list []ptx.Operand) []ptx.Operand {
	out := slices.Clone(list)
	for i := range out {
		o := &out[i]
		if name := globalName(w.object, o.Sym); name != "" {
			o.Name = w.rename(w.object, name)
		}
		if len(o.Elems) > 0 {
			o.Elems = w.operands(o.Elems)
		}
	}
	return out
}
