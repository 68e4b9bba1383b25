package preempt

import (
	"strconv"
	"strings"
	"sync"

	"vgpud/ptx"
)

// tag begins every name that the transformation adds inside a function, after the percent sign of a
// register.
const tag = "vgpud"

// names keeps the transformation's names apart from the module's. A name of the transformation
// begins with prefix ("vgpud_", or "vgpud1_" and so on if the module has such names already), and
// no name of the module contains it: so its names can't collide with others, hide them or be
// hidden, in any scope.
type names struct {
	prefix   string
	globals  map[string]bool // at module scope
	specials bool            // the module declares a name that elsewhere means a special register
	known    map[string]string
	frags    map[string][]ptx.Stmt // fragments with their names, by text
}

// newNames reads every name that m declares.
func newNames(m *ptx.Module) *names {
	n := &names{globals: map[string]bool{}, known: map[string]string{}, frags: map[string][]ptx.Stmt{}}
	taken := map[int]bool{}
	add := func(name string) {
		n.record(name, taken)
	}
	vars := func(list []*ptx.Var) {
		for _, v := range list {
			add(v.Name)
		}
	}
	var block func(b *ptx.Block)
	block = func(b *ptx.Block) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ptx.Var:
				add(s.Name)
			case *ptx.Label:
				add(s.Name)
			case *ptx.Block:
				block(s)
			case *ptx.BranchTargets:
				add(s.Name)
			case *ptx.CallTargets:
				add(s.Name)
			case *ptx.CallPrototype:
				add(s.Name)
			}
		}
	}
	for _, it := range m.Items {
		switch it := it.(type) {
		case *ptx.Var:
			n.globals[it.Name] = true
			add(it.Name)
		case *ptx.Alias:
			n.globals[it.Name] = true
			add(it.Name)
		case *ptx.Func:
			n.globals[it.Name] = true
			add(it.Name)
			vars(it.Params)
			vars(it.Returns)
			if it.Body != nil {
				block(it.Body)
			}
		}
	}
	number := 0
	for taken[number] {
		number++
	}
	n.prefix = defaultPrefix
	if number > 0 {
		n.prefix = tag + strconv.Itoa(number) + "_"
	}
	return n
}

// record records which numbers between tag and underscore a declared name uses.
func (n *names) record(name string, taken map[int]bool) {
	if name[0] == '%' && ptx.Special(name) != nil {
		n.specials = true
	}
	for rest := name; ; {
		i := strings.Index(rest, tag)
		if i < 0 {
			return
		}
		rest = rest[i+len(tag):]
		const mostDigits = 9 // larger numbers than the module has names
		number, digits := 0, 0
		for digits < len(rest) && digits <= mostDigits && rest[digits] >= '0' && rest[digits] <= '9' {
			number = number*10 + int(rest[digits]-'0')
			digits++
		}
		if digits < len(rest) && digits <= mostDigits && rest[digits] == '_' {
			taken[number] = true
		}
	}
}

// ours returns a fragment's name as it is in the module: V_end becomes vgpud_end, %V_left becomes
// %vgpud_left. Other names stay.
func (n *names) ours(name string) string {
	if s, ok := n.known[name]; ok {
		return s
	}
	out := name
	switch {
	case strings.HasPrefix(name, "%V_"):
		out = "%" + n.prefix + name[len("%V_"):]
	case strings.HasPrefix(name, "V_"):
		out = n.prefix + name[len("V_"):]
	}
	n.known[name] = out
	return out
}

// launchName stands in fragments for the launch's appended parameter, whose name differs by kernel.
const launchName = "V_launch"

// defaultFragments caches fragments with defaultPrefix, by text: nearly all modules use that
// prefix.
var defaultFragments sync.Map

const defaultPrefix = tag + "_"

// fragment returns a fragment with its names in this module, except launchName. It must not be
// modified.
func (n *names) fragment(text string) []ptx.Stmt {
	if f, ok := n.frags[text]; ok {
		return f
	}
	if n.prefix == defaultPrefix {
		if f, ok := defaultFragments.Load(text); ok {
			return f.([]ptx.Stmt)
		}
	}
	f := n.renamed(fragment(text))
	if n.prefix == defaultPrefix {
		defaultFragments.Store(text, f)
	} else {
		n.frags[text] = f
	}
	return f
}

// renamed copies a fragment with this module's names.
func (n *names) renamed(parsed []ptx.Stmt) []ptx.Stmt {
	out := make([]ptx.Stmt, len(parsed))
	var c copier
	for i, s := range parsed {
		switch s := s.(type) {
		case *ptx.Instr:
			in := c.instr(s)
			in.Pos = ptx.Pos{}
			if in.Guarded() {
				in.Pred.Name = n.ours(in.Pred.Name)
			}
			for j := range in.Operands {
				if o := &in.Operands[j]; o.Name != "" && o.Name != launchName {
					o.Name = n.ours(o.Name)
				}
			}
			out[i] = in
		case *ptx.Label:
			out[i] = &ptx.Label{Name: n.ours(s.Name)}
		case *ptx.Var:
			v := *s
			v.Pos = ptx.Pos{}
			v.Name = n.ours(v.Name)
			out[i] = &v
		default:
			out[i] = s
		}
	}
	return out
}
