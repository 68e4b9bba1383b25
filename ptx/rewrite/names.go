package rewrite

import (
	"strconv"
	"strings"

	"vgpud/ptx"
)

// tag begins every name that the transformation adds inside a function, after the percent sign of a
// register.
const tag = "vgpud"

// Names keeps the transformation's names apart from the module's. A name of the transformation
// begins with Prefix ("vgpud_", or "vgpud1_" and so on if the module has such names already), and
// no name of the module contains it: so its names can't collide with others, hide them or be
// hidden, in any scope.
type Names struct {
	Prefix   string
	Globals  map[string]bool // the names at module scope
	Specials bool            // the module declares a name that elsewhere means a special register

	known map[string]string
}

// NewNames reads every name that m declares.
func NewNames(m *ptx.Module) *Names {
	n := &Names{Globals: map[string]bool{}, known: map[string]string{}}
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
			n.Globals[it.Name] = true
			add(it.Name)
		case *ptx.Alias:
			n.Globals[it.Name] = true
			add(it.Name)
		case *ptx.Func:
			n.Globals[it.Name] = true
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
	n.Prefix = DefaultPrefix
	if number > 0 {
		n.Prefix = tag + strconv.Itoa(number) + "_"
	}
	return n
}

// record records which numbers between tag and underscore a declared name uses.
func (n *Names) record(name string, taken map[int]bool) {
	if name[0] == '%' && ptx.Special(name) != nil {
		n.Specials = true
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

// Ours returns a fragment's name as it is in the module: V_end becomes vgpud_end, %V_left becomes
// %vgpud_left. Other names stay.
func (n *Names) Ours(name string) string {
	if s, ok := n.known[name]; ok {
		return s
	}
	out := name
	switch {
	case strings.HasPrefix(name, "%V_"):
		out = "%" + n.Prefix + name[len("%V_"):]
	case strings.HasPrefix(name, "V_"):
		out = n.Prefix + name[len("V_"):]
	}
	n.known[name] = out
	return out
}

// DefaultPrefix is the prefix in nearly all modules.
const DefaultPrefix = tag + "_"

// Renamed copies parsed statements with this module's names for theirs; the name except stays.
func (n *Names) Renamed(parsed []ptx.Stmt, except string) []ptx.Stmt {
	out := make([]ptx.Stmt, len(parsed))
	var c Copier
	for i, s := range parsed {
		switch s := s.(type) {
		case *ptx.Instr:
			in := c.Instr(s)
			in.Pos = ptx.Pos{}
			if in.Guarded() {
				in.Pred.Name = n.Ours(in.Pred.Name)
			}
			for j := range in.Operands {
				if o := &in.Operands[j]; o.Name != "" && o.Name != except {
					o.Name = n.Ours(o.Name)
				}
			}
			out[i] = in
		case *ptx.Label:
			out[i] = &ptx.Label{Name: n.Ours(s.Name)}
		case *ptx.Var:
			v := *s
			v.Pos = ptx.Pos{}
			v.Name = n.Ours(v.Name)
			out[i] = &v
		default:
			out[i] = s
		}
	}
	return out
}
