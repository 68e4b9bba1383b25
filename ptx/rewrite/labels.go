package rewrite

import "vgpud/ptx"

// Labels are names of labels that copies of a function keep. The zero value keeps all.
type Labels struct{ targets map[string]bool }

// NewLabels returns the labels that something branches to, if the module has debug sections: these may
// refer to labels that nothing branches to, which only the originals keep.
func NewLabels(p *ptx.Program) Labels {
	if !hasSections(p.Module) {
		return Labels{}
	}
	l := Labels{map[string]bool{}}
	for _, c := range p.Codes {
		for _, in := range c.Instrs {
			ptx.Walk(in.Operands, func(o *ptx.Operand) {
				switch s := o.Sym; {
				case s == nil:
				case s.Kind == ptx.SymLabel:
					l.targets[s.Name] = true
				case s.Kind == ptx.SymTargets:
					for _, name := range s.Branch.Labels {
						l.targets[name] = true
					}
				}
			})
		}
	}
	return l
}

func hasSections(m *ptx.Module) bool {
	for _, it := range m.Items {
		if _, ok := it.(*ptx.Section); ok {
			return true
		}
	}
	return false
}

// Keep reports whether a copy keeps a label.
func (l Labels) Keep(name string) bool { return l.targets == nil || l.targets[name] }
