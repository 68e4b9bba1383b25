package variables

import (
	"fmt"
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// Place is where a variable of a loaded module lies.
type Place struct {
	Address uint64 // on the GPU, in global space
	Bytes   uint64 // its size
}

// Bind returns a module with the function or kernel called root and what it calls, bound to the
// variables of the module that m is the text of. find returns where that has the variable of a name; it
// is called once for each that is used.
//
// m keeps its text, but Bind binds its names as ptx.Resolve does, so nothing else may use m
// meanwhile. The new module shares with it what neither changes, has no debugging information, and must
// be resolved before use. The error is Resolve's, or a [*Refusal]; one of find's is in a Refusal.
func Bind(m *ptx.Module, root string, find func(name string) (Place, error)) (*ptx.Module, error) {
	prog, err := ptx.Resolve(m)
	if err != nil {
		return nil, fmt.Errorf("bind the module's names: %w", err)
	}
	b := &binder{
		prog: prog, names: rewrite.NewNames(m), copier: &rewrite.Copier{}, find: find,
		places: map[*ptx.Var]Place{}, kept: map[string]bool{}, others: map[*ptx.Var]bool{},
	}
	if b.names.Specials {
		return nil, refuse(UnsupportedUse, "the module declares the name of a special register")
	}
	if m.AddressSize != 64 {
		return nil, refuse(NarrowAddress, "addresses have 32 bits")
	}
	first := prog.Code(root)
	if first == nil {
		return nil, refuse(NoBody, "%s", root)
	}
	if err := b.reach(first); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b.assemble(), nil
}

// binder is a module while a function of it is bound.
type binder struct {
	prog   *ptx.Program
	names  *rewrite.Names
	copier *rewrite.Copier
	find   func(name string) (Place, error)

	codes  []*ptx.Code        // that the root reaches, the root first
	kept   map[string]bool    // names of functions that stay, including those without a body
	others map[*ptx.Var]bool  // shared variables that stay
	places map[*ptx.Var]Place // of variables in global and constant memory that are used
	seen   map[*ptx.Code]bool // of codes
}

// reach finds what the root calls, and refuses calls through pointers.
func (b *binder) reach(root *ptx.Code) error {
	b.seen = map[*ptx.Code]bool{root: true}
	b.codes = []*ptx.Code{root}
	b.kept[root.Func.Name] = true
	for i := 0; i < len(b.codes); i++ {
		for _, in := range b.codes[i].Instrs {
			target := -1
			if in.Opcode == "call" {
				call, ok := in.Call()
				if !ok || call.Target.Sym == nil || call.Target.Sym.Kind != ptx.SymFunc {
					return refuse(FunctionAddress, "%v: it calls through a pointer", in)
				}
				if target = 0; in.Operands[0].Kind == ptx.KindList {
					target = 1
				}
				b.calls(call.Target.Name, call.Target.Sym.Func)
			}
			taken := false
			for j := range in.Operands {
				if j != target {
					ptx.Walk(in.Operands[j:j+1], func(o *ptx.Operand) { taken = taken || o.Sym != nil && o.Sym.Kind == ptx.SymFunc })
				}
			}
			if taken {
				return refuse(FunctionAddress, "%v: it takes a function's address", in)
			}
		}
	}
	return nil
}

// calls notes a function that is called, maybe by an alias.
func (b *binder) calls(name string, f *ptx.Func) {
	b.kept[name], b.kept[f.Name] = true, true
	if c := b.prog.Code(f.Name); c != nil && !b.seen[c] {
		b.seen[c] = true
		b.codes = append(b.codes, c)
	}
}

// assemble makes the module. Sections with debugging information would name what is gone.
func (b *binder) assemble() *ptx.Module {
	out := *b.prog.Module
	out.Items, out.Warnings = nil, nil
	out.Target = slices.DeleteFunc(slices.Clone(out.Target), func(name string) bool { return name == "debug" })
	for _, it := range b.prog.Module.Items {
		switch it := it.(type) {
		case *ptx.Func:
			if !b.kept[it.Name] {
				continue
			}
			if c := b.prog.Code(it.Name); it.Body == nil || c == nil || c.Func != it {
				declared := *it
				declared.Body = nil
				out.Items = append(out.Items, &declared)
				continue
			}
			out.Items = append(out.Items, b.function(it))
			continue
		case *ptx.Var:
			if !b.others[it] {
				continue
			}
		case *ptx.Alias:
			if !b.kept[it.Name] {
				continue
			}
		case *ptx.Section, *ptx.File:
			continue
		}
		out.Items = append(out.Items, it)
	}
	return &out
}
