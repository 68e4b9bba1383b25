package link

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"vgpud/ptx"
)

// Object is one module to link.
type Object struct {
	Name   string // for messages
	Module *ptx.Module
}

// Options configure Link. The zero Options link as CUDA's linker does.
type Options struct {
	// Builtin reports whether a function is provided by the driver, so that it may stay undefined.
	// The default knows vprintf, malloc, free and __assertfail.
	Builtin func(name string) bool
}

// Link joins objects into one module. Kernels, and variables that are not local to their object,
// keep their names; so does everything else whose name no other object uses.
//
// A name may be defined once by .visible, and any number of times by .weak and .common: .visible
// wins, then the first .weak, then the largest .common. A definition without a linking directive is
// local to its object, and so is a kernel's name only by its spelling: two kernels of one name are
// an error. Variables in dynamic shared memory (.extern .shared x[]) need no definition.
//
// The result shares parts of the objects' trees, which Link binds as [ptx.Resolve] does: don't use
// the objects meanwhile, nor afterwards together with the result. The error, if any, is of type
// [Errors].
func Link(objects []Object, o Options) (*ptx.Module, error) {
	if o.Builtin == nil {
		o.Builtin = builtin
	}
	l := &linker{opts: o, globals: map[string]*symbol{}}
	for _, obj := range objects {
		l.add(obj)
	}
	if len(objects) == 0 {
		l.fail(&Error{Kind: Incompatible, Objects: []string{"the linker"}, Detail: "no objects"})
	}
	out := l.header()
	for _, step := range []func(){l.choose, l.reach} {
		if len(l.errs) > 0 {
			return nil, l.errs
		}
		step()
	}
	if len(l.errs) > 0 {
		return nil, l.errs
	}
	l.write(out)
	return out, nil
}

// linker is the state of one Link.
type linker struct {
	opts    Options
	objects []*object
	globals map[string]*symbol // the chosen definitions of global names; before that, the candidates
	reached []*symbol          // in the order in which they were reached
	errs    Errors
}

// builtin reports whether CUDA's driver provides a function.
func builtin(name string) bool {
	switch name {
	case "vprintf", "malloc", "free", "__assertfail":
		return true
	}
	return false
}

// header returns a module with the highest version and target of the objects.
func (l *linker) header() *ptx.Module {
	out := &ptx.Module{}
	var options []string
	best := ""
	for i, o := range l.objects {
		m := o.module
		if out.Version.Less(m.Version) {
			out.Version = m.Version
		}
		size := m.AddressSize
		if size == 0 {
			size = 32
		}
		if i == 0 {
			out.AddressSize = size
		} else if size != out.AddressSize {
			l.fail(&Error{Kind: Incompatible, Objects: []string{l.objects[0].name, o.name}, Detail: "32-bit and 64-bit addresses"})
		}
		targets := m.Target
		for _, it := range m.Items {
			if t, ok := it.(*ptx.Target); ok {
				targets = append(targets[:len(targets):len(targets)], t.Names...)
			}
		}
		for _, name := range targets {
			switch {
			case !strings.HasPrefix(name, "sm_"):
				if !slices.Contains(options, name) {
					options = append(options, name)
				}
			case best == "" || compareTargets(name, best) > 0:
				best = name
			}
		}
	}
	if best != "" {
		out.Target = append(out.Target, best)
	}
	out.Target = append(out.Target, options...)
	if slices.Contains(options, "texmode_unified") && slices.Contains(options, "texmode_independent") {
		l.fail(&Error{Kind: Incompatible, Objects: l.objectNames(), Detail: "texture modes unified and independent"})
	}
	return out
}

// compareTargets compares architectures: sm_90 before sm_90a, before sm_100.
func compareTargets(a, b string) int {
	number := func(name string) (int, string) {
		digits := strings.TrimPrefix(name, "sm_")
		suffix := strings.TrimLeft(digits, "0123456789")
		n, _ := strconv.Atoi(strings.TrimSuffix(digits, suffix))
		return n, suffix
	}
	n, s := number(a)
	m, t := number(b)
	return cmp.Or(cmp.Compare(n, m), cmp.Compare(s, t))
}

func (l *linker) objectNames() (names []string) {
	for _, o := range l.objects {
		names = append(names, o.name)
	}
	return names
}
