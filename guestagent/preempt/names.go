package preempt

import (
	"sync"

	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// names are a module's, with the fragments of code that have its names.
type names struct {
	*rewrite.Names
	frags map[string][]ptx.Stmt // by text
}

func newNames(m *ptx.Module) *names {
	return &names{rewrite.NewNames(m), map[string][]ptx.Stmt{}}
}

// launchName stands in fragments for the launch's appended parameter, whose name differs by kernel.
const launchName = "V_launch"

// defaultFragments caches fragments with rewrite.DefaultPrefix, by text: nearly all modules use that
// prefix.
var defaultFragments sync.Map

// fragment returns a fragment with its names in this module, except launchName. It must not be
// modified.
func (n *names) fragment(text string) []ptx.Stmt {
	if f, ok := n.frags[text]; ok {
		return f
	}
	if n.Prefix == rewrite.DefaultPrefix {
		if f, ok := defaultFragments.Load(text); ok {
			return f.([]ptx.Stmt)
		}
	}
	f := n.Renamed(fragment(text), launchName)
	if n.Prefix == rewrite.DefaultPrefix {
		defaultFragments.Store(text, f)
	} else {
		n.frags[text] = f
	}
	return f
}
