package link

import (
	"fmt"
	"strings"

	"vgpud/ptx"
)

// reach finds what the result needs: kernels, variables that a host may look up, and all that these
// refer to. A host may look up a variable that is local to its object, too: GCC's libgomp does. A
// needed name that is defined nowhere is an error.
func (l *linker) reach() {
	for _, o := range l.objects {
		for _, it := range o.module.Items {
			s := o.symbols[itemName(it)]
			if s == nil || s.target != nil || !s.defined {
				continue
			}
			global := s.v != nil && (s.v.Space == ptx.GlobalSpace || s.v.Space == ptx.ConstSpace)
			if global || s.fn != nil && s.fn.Entry {
				l.need(s, nil)
			}
		}
	}
	for i := 0; i < len(l.reached); i++ {
		s := l.reached[i]
		if s.defined {
			s.references(func(name string) {
				if of := s.object.symbols[name]; of != nil {
					of = of.resolve()
					s.refs = append(s.refs, of)
					l.need(of, s)
				}
			})
		}
	}
}

// need adds a symbol to what is reached; user refers to it.
func (l *linker) need(s, user *symbol) {
	if s.seen {
		return
	}
	s.seen, s.user = true, user
	if !s.defined && !s.dynamicShared() && !(s.fn != nil && l.opts.Builtin(s.name)) {
		l.fail(&Error{Kind: Undefined, Symbol: s.name, Objects: []string{user.object.name}, Detail: path(user)})
		return
	}
	l.reached = append(l.reached, s)
}

// path describes how a symbol is reached: "used by f in b.o, which is used by k in a.o".
func path(s *symbol) string {
	const most = 4
	var b strings.Builder
	for n := 0; s != nil && n < most; n, s = n+1, s.user {
		if n > 0 {
			b.WriteString(", which is ")
		}
		fmt.Fprintf(&b, "used by %s in %s", s.name, s.object.name)
	}
	return b.String()
}

// references calls use for each name at module scope that a definition refers to, maybe repeatedly.
func (s *symbol) references(use func(name string)) {
	if s.v != nil {
		initializerNames(s.v, use)
		return
	}
	code := s.object.prog.Code(s.fn.Name)
	if code == nil {
		return
	}
	for _, in := range code.Instrs {
		ptx.Walk(in.Operands, func(o *ptx.Operand) {
			if name := globalName(s.object, o.Sym); name != "" {
				use(name)
			}
			if o.Sym != nil && o.Sym.Kind == ptx.SymCalls {
				for _, name := range o.Sym.Calls.Funcs {
					use(name)
				}
			}
		})
	}
	for _, v := range code.Vars {
		initializerNames(v.Var, use)
	}
}

// globalName returns the name under which an object's operand refers to module scope, or "".
func globalName(o *object, sym *ptx.Symbol) string {
	switch {
	case sym == nil:
	case sym.Kind == ptx.SymFunc, sym.Kind == ptx.SymVar && o.prog.Globals[sym.Name] == sym:
		return sym.Name
	}
	return ""
}

// initializerNames calls use for each name in a variable's initializer.
func initializerNames(v *ptx.Var, use func(string)) {
	if v.Init == nil {
		return
	}
	for x, err := range v.Values() {
		if err != nil {
			return // Parse has checked it
		}
		if x.Name != "" {
			use(x.Name)
		}
	}
}
