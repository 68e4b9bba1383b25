package simt

import (
	"slices"

	"vgpud/ptx"
)

// Calls through pointers. A kernel's pointers can be to any function whose address the module takes
// anywhere, since another kernel may have left it in memory. A module of many kernels and many such
// functions is too large that way: GCC makes two or three of them for each loop that it offloads. Such
// a module is loaded again with fewer: those whose addresses a kernel can get by itself, from the
// code that it reaches and from variables' initial values. A call of any other function faults.

// pointers are the functions that pointers of a kernel can be to, and those that call through them.
type pointers struct {
	targets []*ptx.Func
	is      map[*ptx.Func]bool // they are among targets, where not all are
	added   int                // so many of them are part of the program
	callers []*function
}

// pointers returns what a kernel's pointers can be to from the start.
func (l *loader) pointers() *pointers {
	if !l.named {
		return &pointers{targets: l.taken}
	}
	t := &pointers{targets: slices.Clone(l.initial), is: map[*ptx.Func]bool{}}
	for _, f := range t.targets {
		t.is[f] = true
	}
	return t
}

// take adds the functions whose addresses an instruction takes.
func (t *pointers) take(l *loader, in *ptx.Instr) {
	if !l.named {
		return // all are there
	}
	for f := range addressesIn(in) {
		if l.addrs[f] != 0 && !t.is[f] {
			t.is[f] = true
			t.targets = append(t.targets, f)
		}
	}
}

// addTargets adds to a program that calls through pointers the functions that it may call so. It
// reports whether there were any.
func (c *compiler) addTargets(t *pointers) (more bool, err error) {
	if len(t.callers) == 0 {
		return false, nil
	}
	before := len(c.queue)
	for ; t.added < len(t.targets); t.added++ {
		f := t.targets[t.added]
		g, err := c.add(c.loader.codes[f])
		if err != nil {
			return false, err
		}
		c.prog.entries[c.loader.addrs[f]] = g
	}
	return len(c.queue) > before, nil
}

// edgesPerInst is the number of edges of the call graph that use as much memory as one instruction.
const edgesPerInst = 32

// callTargets notes the calls through pointers in the call graph.
func (c *compiler) callTargets(t *pointers) error {
	for _, f := range t.callers {
		if err := c.charge(len(t.targets) / edgesPerInst); err != nil {
			return err
		}
		for _, g := range t.targets {
			f.calls = append(f.calls, c.funcs[g])
		}
	}
	return nil
}
