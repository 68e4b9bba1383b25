package link

import "vgpud/ptx"

// object is a module that is being linked.
type object struct {
	name   string
	module *ptx.Module
	prog   *ptx.Program
	// symbols holds what the object's names at module scope mean: a definition of its own, or a
	// reference that choose resolves.
	symbols map[string]*symbol
	files   map[int]int // the new numbers of its source files
}

// symbol is a function or variable at module scope, defined or only referred to.
type symbol struct {
	name    string // as the object writes it
	object  *object
	linking ptx.Linking
	fn      *ptx.Func  // defining or, in a reference, declaring
	v       *ptx.Var   // likewise
	alias   *ptx.Alias // another name of a function of the object; fn is its declaration, or nil
	defined bool
	align   int // the highest written alignment of a variable's declarations, if there are several

	target *symbol   // of a reference or alias: its definition, once chosen; nil if there is none
	seen   bool      // reached
	user   *symbol   // what reached it first; nil for a root
	refs   []*symbol // what a reached definition refers to
	as     string    // its name in the result
}

// local reports whether nothing outside of the object may refer to a definition. A kernel's name is
// known to the host.
func (s *symbol) local() bool {
	return s.defined && s.linking == ptx.Internal && !(s.fn != nil && s.fn.Entry)
}

// resolve follows references and aliases to the definition, or to a reference that has none.
func (s *symbol) resolve() *symbol {
	for s.target != nil {
		s = s.target
	}
	return s
}

// dynamicShared reports whether a variable stands for the block's dynamic shared memory.
func (s *symbol) dynamicShared() bool {
	return s.v != nil && s.v.Linking == ptx.Extern && s.v.Space == ptx.SharedSpace &&
		len(s.v.Dims) > 0 && s.v.Dims[0] == ptx.Unsized
}

// add binds an object's names and collects its symbols.
func (l *linker) add(obj Object) {
	o := &object{name: obj.Name, module: obj.Module, symbols: map[string]*symbol{}, files: map[int]int{}}
	l.objects = append(l.objects, o)
	var err error
	if o.prog, err = ptx.Resolve(obj.Module); err != nil {
		l.fail(&Error{Kind: Incompatible, Objects: []string{o.name}, Detail: err.Error()})
		return
	}
	var list []*symbol
	get := func(name string) *symbol {
		s := o.symbols[name]
		if s == nil {
			s = &symbol{name: name, object: o, linking: ptx.Internal}
			o.symbols[name] = s
			list = append(list, s)
		}
		return s
	}
	for _, it := range o.module.Items {
		switch it := it.(type) {
		case *ptx.Func:
			s := get(it.Name)
			s.mention(it.Linking)
			if s.fn == nil || it.Body != nil {
				s.fn = it
			}
			s.defined = s.defined || it.Body != nil
		case *ptx.Var:
			s := get(it.Name)
			s.mention(it.Linking)
			if s.v == nil || it.Linking != ptx.Extern {
				s.v = it
			}
			s.defined = s.defined || it.Linking != ptx.Extern
		case *ptx.Alias:
			s := get(it.Name)
			s.alias, s.defined = it, true
		}
	}
	for _, s := range list {
		if s.alias != nil {
			s.target = o.symbols[s.alias.Of]
		}
		if !s.local() {
			l.candidate(s)
		}
	}
}

// mention records the linking directive of one declaration of a symbol. Those of a definition and
// of its forward declarations should agree; where they don't, the most visible counts.
func (s *symbol) mention(of ptx.Linking) {
	switch {
	case s.linking == ptx.Internal || s.linking == ptx.Extern && of != ptx.Internal:
		s.linking = of
	}
}
