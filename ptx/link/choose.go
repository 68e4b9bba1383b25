package link

import (
	"fmt"

	"vgpud/ptx"
)

// candidate offers a symbol as the definition of its name. The better of it and the present one
// stays; the other is made to refer to it by choose.
func (l *linker) candidate(s *symbol) {
	best := l.globals[s.name]
	switch {
	case best == nil:
		l.globals[s.name] = s
		return
	case rank(s) == rank(best) && rank(s) == strong:
		l.fail(&Error{Kind: Duplicate, Symbol: s.name, Objects: []string{best.object.name, s.object.name}})
	case rank(s) > rank(best), rank(s) == common && rank(best) == common && s.v.Size() > best.v.Size():
		l.globals[s.name] = s
	}
	if s.v != nil && best.v != nil {
		// Whichever is chosen serves both.
		s.align = max(s.align, best.align, s.v.Align, best.v.Align)
		best.align = s.align
	}
}

// Ranks of definitions.
const (
	reference = iota
	dynamic   // dynamic shared memory, which needs no definition
	common
	weak
	strong
)

// rank returns how a symbol fares as the definition of its name.
func rank(s *symbol) int {
	switch {
	case s.dynamicShared():
		return dynamic
	case !s.defined:
		return reference
	case s.linking == ptx.Common && s.v != nil:
		return common
	case s.linking == ptx.Weak:
		return weak
	}
	return strong
}

// choose makes each object's references refer to the chosen definitions, and checks that they are
// of one kind.
func (l *linker) choose() {
	var all []*symbol
	seen := map[*symbol]bool{}
	for _, o := range l.objects {
		for _, it := range o.module.Items { // a map has no order
			s := o.symbols[itemName(it)]
			if s == nil || seen[s] || s.local() && s.alias == nil {
				continue
			}
			seen[s] = true
			all = append(all, s)
			if best := l.globals[s.name]; best != s && !s.local() {
				s.target = best
			}
		}
	}
	l.shorten(all)
	for _, s := range all {
		to := s.target
		if to == nil {
			continue
		}
		if why := contradiction(s, to); why != "" {
			l.fail(&Error{Kind: Mismatch, Symbol: s.name, Objects: []string{s.object.name, to.object.name}, Detail: why})
		}
	}
}

// shorten makes each symbol's target its final one: aliases may refer to references, and these to
// aliases. A circle of them is an error.
func (l *linker) shorten(all []*symbol) {
	final := map[*symbol]bool{}
	for _, s := range all {
		var chain []*symbol
		on := map[*symbol]bool{}
		for s.target != nil && !final[s] && !on[s] {
			on[s] = true
			chain = append(chain, s)
			s = s.target
		}
		if on[s] {
			l.fail(&Error{Kind: Incompatible, Symbol: s.name, Objects: []string{s.object.name}, Detail: "the aliases of " + s.name + " form a circle"})
			s.target = nil
		}
		if s.target != nil {
			s = s.target
		}
		for _, c := range chain {
			if c != s {
				c.target, final[c] = s, true
			}
		}
	}
}

// itemName returns the name that an item declares, or "".
func itemName(it ptx.Item) string {
	switch it := it.(type) {
	case *ptx.Func:
		return it.Name
	case *ptx.Var:
		return it.Name
	case *ptx.Alias:
		return it.Name
	}
	return ""
}

// contradiction returns why two declarations can't be of the same thing, or "". Functions have to
// have parameters of the same sizes, as CUDA's linker demands; what types they have is the
// compiler's matter.
func contradiction(a, b *symbol) string {
	switch {
	case (a.v != nil) != (b.v != nil):
		return "a variable and a function"
	case a.v != nil:
		if a.v.Space != b.v.Space {
			return fmt.Sprintf("a variable in .%v and in .%v", a.v.Space, b.v.Space)
		}
		return ""
	case a.fn == nil || b.fn == nil: // aliases
		return ""
	case a.fn.Entry != b.fn.Entry:
		return "a kernel and a function"
	}
	if why := sizesDiffer("parameters", a.fn.Params, b.fn.Params); why != "" {
		return why
	}
	return sizesDiffer("results", a.fn.Returns, b.fn.Returns)
}

// sizesDiffer returns how two lists of parameters differ, or "".
func sizesDiffer(what string, a, b []*ptx.Var) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d %s", len(a), len(b), what)
	}
	for i := range a {
		if x, y := a[i].Size(), b[i].Size(); x != y {
			return fmt.Sprintf("%s %d of %d and %d bytes", what, i+1, x, y)
		}
	}
	return ""
}
