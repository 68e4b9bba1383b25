package preempt

import (
	"strconv"
	"strings"
	"sync"

	"vgpud/ptx"
)

// tag begins every name that the transformation adds inside a function, behind the percent sign of a register.
const tag = "vgpud"

// names keeps what the transformation adds apart from what the module declares. A name of ours begins with prefix
// ("vgpud_", or "vgpud1_" and so on where a module has such names already), and no name of the module has that in it:
// so ours can't collide with any, hide any, or be hidden, in whatever scope.
type names struct {
	prefix   string
	globals  map[string]bool // at module scope
	specials bool            // the module declares a name that means a special register elsewhere
	ours     map[string]string
	frags    map[string][]ptx.Stmt // fragments with their names, by their text
}

// newNames looks at every name that m declares.
func newNames(m *ptx.Module) *names {
	n := &names{globals: map[string]bool{}, ours: map[string]string{}, frags: map[string][]ptx.Stmt{}}
	taken := map[int]bool{}
	add := func(name string) {
		n.note(name, taken)
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
	n.prefix = usualPrefix
	if number > 0 {
		n.prefix = tag + strconv.Itoa(number) + "_"
	}
	return n
}

// note looks at one declared name: which numbers between tag and underscore it uses up.
func (n *names) note(name string, taken map[int]bool) {
	if name[0] == '%' && ptx.Special(name) != nil {
		n.specials = true
	}
	for rest := name; ; {
		i := strings.Index(rest, tag)
		if i < 0 {
			return
		}
		rest = rest[i+len(tag):]
		const mostDigits = 9 // more of them than the module has names
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

// own turns a name of a fragment into one of the module: V_end into vgpud_end, %V_left into %vgpud_left. Other names
// stay.
func (n *names) own(name string) string {
	if s, ok := n.ours[name]; ok {
		return s
	}
	out := name
	switch {
	case strings.HasPrefix(name, "%V_"):
		out = "%" + n.prefix + name[len("%V_"):]
	case strings.HasPrefix(name, "V_"):
		out = n.prefix + name[len("V_"):]
	}
	n.ours[name] = out
	return out
}

// launchName stands for the launch's appended parameter in fragments, which has another name in each kernel.
const launchName = "V_launch"

// usual keeps fragments with the names they have in nearly every module, by their text: those with usualPrefix.
var usual sync.Map

const usualPrefix = tag + "_"

// fragment is a fragment with the names it has in this module, launchName aside. It is not to be written into.
func (n *names) fragment(text string) []ptx.Stmt {
	if f, ok := n.frags[text]; ok {
		return f
	}
	if n.prefix == usualPrefix {
		if f, ok := usual.Load(text); ok {
			return f.([]ptx.Stmt)
		}
	}
	f := n.renamed(fragment(text))
	if n.prefix == usualPrefix {
		usual.Store(text, f)
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
				in.Pred.Name = n.own(in.Pred.Name)
			}
			for j := range in.Operands {
				if o := &in.Operands[j]; o.Name != "" && o.Name != launchName {
					o.Name = n.own(o.Name)
				}
			}
			out[i] = in
		case *ptx.Label:
			out[i] = &ptx.Label{Name: n.own(s.Name)}
		case *ptx.Var:
			v := *s
			v.Pos = ptx.Pos{}
			v.Name = n.own(v.Name)
			out[i] = &v
		default:
			out[i] = s
		}
	}
	return out
}
