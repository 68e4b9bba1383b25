package variables

import (
	"strings"

	"vgpud/ptx"
)

// check finds the variables that are used, with their places, and refuses what can't be bound.
func (b *binder) check() error {
	constants, queries := false, ""
	for _, c := range b.codes {
		for _, s := range c.Vars {
			if inMemory(s.Var) {
				return refuse(InFunction, "%s declares %s", c.Func.Name, s.Name)
			}
		}
		follow := false // there is something for constant.go
		for _, in := range c.Instrs {
			if in.Has("const") {
				switch follow = true; in.Opcode {
				case "ld", "cvta":
				case "isspacep":
				default:
					return refuse(UnsupportedUse, "%v", in)
				}
			}
			if in.Opcode == "isspacep" && (in.Has("const") || in.Has("global")) {
				queries = in.String()
			}
			constant, err := b.instruction(c, in)
			if err != nil {
				return err
			}
			follow, constants = follow || constant, constants || constant
		}
		if follow {
			if err := followConstants(c); err != nil {
				return err
			}
		}
	}
	if constants && queries != "" {
		return refuse(SpaceQuery, "%s", queries)
	}
	return b.initialValues()
}

// inMemory reports whether a variable is in global or constant memory, or names something that is bound to it.
func inMemory(v *ptx.Var) bool {
	return v.Space == ptx.GlobalSpace || v.Space == ptx.ConstSpace || v.Space == ptx.TexSpace || v.Type.Class() == ptx.Opaque
}

// bound returns the variable that an operand names, if it is one that Bind replaces, or nil.
func bound(o *ptx.Operand) *ptx.Var {
	if o.Sym != nil && o.Sym.Kind == ptx.SymVar && inMemory(o.Sym.Var) {
		return o.Sym.Var
	}
	return nil
}

// instruction checks the variables that an instruction names, and reports whether one is in constant
// memory.
func (b *binder) instruction(c *ptx.Code, in *ptx.Instr) (constant bool, err error) {
	ptx.Walk(in.Operands, func(o *ptx.Operand) {
		if err != nil || o.Sym == nil || o.Sym.Kind != ptx.SymVar {
			return
		}
		v := bound(o)
		if v == nil {
			b.others[o.Sym.Var] = true // a shared variable of the module, or one of the function's own
			return
		}
		constant = constant || v.Space == ptx.ConstSpace
		if err = usable(in, o, v); err == nil {
			err = b.place(v)
		}
	})
	return constant, err
}

// usable refuses uses of a variable that write.go does not change.
func usable(in *ptx.Instr, o *ptx.Operand, v *ptx.Var) error {
	constant := v.Space == ptx.ConstSpace
	switch {
	case v.Space == ptx.TexSpace || v.Type.Class() == ptx.Opaque:
		return refuse(Texture, "%v", in)
	case len(v.Attributes) > 0:
		return refuse(Managed, "%s is .%s", v.Name, v.Attributes[0].Name)
	case in.Opcode == "call":
		return refuse(UnsupportedUse, "%v", in)
	case o.Kind == ptx.KindAddr:
		// ld.const of a global variable, or ld.global of a constant one, means nothing.
		if constant != in.Has("const") || len(o.Elems) > 0 {
			return refuse(UnsupportedUse, "%v", in)
		}
		return nil
	case !in.Has("u64") && !in.Has("s64") && !in.Has("b64"):
		return refuse(NarrowAddress, "%v", in)
	case in.Opcode == "cvta" && (constant != in.Has("const") || in.Has("to")):
		return refuse(UnsupportedUse, "%v", in)
	}
	return nil
}

// place finds a variable's place.
func (b *binder) place(v *ptx.Var) error {
	if _, known := b.places[v]; known {
		return nil
	}
	p, err := b.find(v.Name)
	if err != nil {
		return &Refusal{Reason: NoAddress, Detail: v.Name, Err: err}
	}
	if size := v.Size(); p.Address == 0 || size < 0 || p.Bytes < uint64(size) {
		return refuse(NoAddress, "%s has %d bytes at %#x, and %d in the text", v.Name, p.Bytes, p.Address, size)
	}
	b.places[v] = p
	return nil
}

// initialValues refuses a module with shared variables' addresses in memory: they were those of the
// original, and any kernel may find them there.
func (b *binder) initialValues() error {
	for _, it := range b.prog.Module.Items {
		v, ok := it.(*ptx.Var)
		if !ok || v.Init == nil || !inMemory(v) || !strings.ContainsAny(v.Init.Raw, letters) {
			continue
		}
		for x, err := range v.Values() {
			if err != nil {
				return refuse(UnsupportedUse, "the initial value of %s: %v", v.Name, err)
			}
			if s := b.prog.Globals[x.Name]; x.Name != "" && s != nil && s.Kind == ptx.SymVar && s.Var.Space == ptx.SharedSpace {
				return refuse(SharedAddress, "%s holds the address of %s", v.Name, x.Name)
			}
		}
	}
	return nil
}

// letters are in every initial value that has a name in it. Long tables of numbers have none.
const letters = "_$%abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
