package link

import (
	"maps"
	"strconv"

	"vgpud/ptx"
)

// namer finds names that nothing uses, neither at module scope nor within a function, where they
// would hide it.
type namer struct {
	used   map[string]bool // anywhere
	inner  map[string]bool // within functions
	ranges map[string]bool // registers declared as name<N>
	next   map[string]int  // by name: the number of the next variation to try
}

// newNamer collects the names that the objects use.
func newNamer(objects []*object) *namer {
	n := &namer{used: map[string]bool{}, inner: map[string]bool{}, ranges: map[string]bool{}, next: map[string]int{}}
	for _, o := range objects {
		for name := range o.symbols {
			n.used[name] = true
		}
		for _, c := range o.prog.Codes {
			for _, list := range [][]*ptx.Var{c.Func.Params, c.Func.Returns} {
				for _, v := range list {
					n.inner[v.Name] = true
				}
			}
			n.block(c.Func.Body)
		}
	}
	maps.Copy(n.used, n.inner)
	return n
}

// block collects the names that a block declares.
func (n *namer) block(b *ptx.Block) {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Var:
			n.inner[s.Name] = true
			if s.Count > 0 {
				n.ranges[s.Name] = true
			}
		case *ptx.Label:
			n.inner[s.Name] = true
		case *ptx.BranchTargets:
			n.inner[s.Name] = true
		case *ptx.CallTargets:
			n.inner[s.Name] = true
		case *ptx.CallPrototype:
			n.inner[s.Name] = true
		case *ptx.Block:
			n.block(s)
		}
	}
}

// vary returns a variation of name that nothing uses.
func (n *namer) vary(name string) string {
	for {
		n.next[name]++
		v := name + "$" + strconv.Itoa(n.next[name])
		switch {
		case n.inRange(v):
			name += "$" // the range may have any number of registers
		case !n.used[v]:
			n.used[v] = true
			return v
		}
	}
}

// hidden reports whether a declaration within a function may hide name.
func (n *namer) hidden(name string) bool { return n.inner[name] || n.inRange(name) }

// inRange reports whether name may be one of a range of registers: name<N> declares name0 and so
// on.
func (n *namer) inRange(name string) bool {
	for i := len(name); i > 0 && name[i-1] >= '0' && name[i-1] <= '9'; i-- {
		if n.ranges[name[:i-1]] {
			return true
		}
	}
	return false
}
