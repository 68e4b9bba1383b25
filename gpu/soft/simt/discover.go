package simt

import (
	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// discover finds the functions that a kernel can reach. It assigns registers and frames to them,
// and shared memory to the kernel.
func (c *compiler) discover(kernel *ptx.Code) error {
	if err := c.charge(len(c.loader.shared)); err != nil {
		return err
	}
	if _, err := c.add(kernel); err != nil {
		return err
	}
	t := c.loader.pointers()
	for i := 0; ; i++ {
		if i == len(c.queue) {
			more, err := c.addTargets(t)
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
		f := c.queue[i]
		for _, in := range f.code.Instrs {
			c.findShared(in)
			call, ok := in.Call()
			if !ok {
				t.take(c.loader, in)
				continue
			}
			if call.Target.Kind == ptx.KindReg {
				if !f.unknown {
					f.unknown = true
					t.callers = append(t.callers, f)
				}
				continue
			}
			if s := call.Target.Sym; s != nil && s.Kind == ptx.SymFunc && c.loader.codes[s.Func] != nil {
				g, err := c.add(c.loader.codes[s.Func])
				if err != nil {
					return err
				}
				f.calls = append(f.calls, g)
			}
		}
	}
	if err := c.callTargets(t); err != nil {
		return err
	}
	// ptxas for sm_90 (CUDA 13.0) places the functions' own variables first, and each part of
	// dynamic shared memory after everything else, with its alignment but at least 16 bytes. A module's
	// variable that the kernel doesn't name takes no room: clang declares those of all kernels there.
	for _, v := range c.loader.shared {
		if !c.named[v] {
			continue
		}
		if err := c.placeShared(v); err != nil {
			return err
		}
	}
	c.prog.dynamicShared = uint32(alignUp(c.shared.size, dynamicAlign))
	c.findRecursion()
	return nil
}

// findShared notes the module's shared variables that an instruction names.
func (c *compiler) findShared(in *ptx.Instr) {
	if len(c.loader.shared) == 0 {
		return
	}
	ptx.Walk(in.Operands, func(o *ptx.Operand) {
		if s := o.Sym; s != nil && s.Var != nil && s.Var.Space == ptx.SharedSpace {
			c.named[s.Var] = true
		}
	})
}

// dynamicAlign is the least alignment of dynamic shared memory, in bytes.
const dynamicAlign = 16

// chargeFunction charges for a function, which is compiled again for every kernel that can reach
// it, and for the targets of its brx instructions: a short list that many of them use makes as many
// edges of the control-flow graph as there are instructions times labels. Its instructions are
// charged when they are compiled.
func (c *compiler) chargeFunction(code *ptx.Code) error {
	if err := c.charge(1 + len(code.Params) + len(code.Returns) + len(code.Vars)); err != nil {
		return err
	}
	for _, in := range code.Instrs {
		if in.Opcode != "brx" || len(in.Operands) < 2 {
			continue
		}
		if list := in.Operands[1].Sym; list != nil && list.Kind == ptx.SymTargets {
			if err := c.charge(len(list.Branch.Syms)); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget drops the functions' source, which a running program does not need.
func (c *compiler) forget() {
	for _, f := range c.queue {
		f.decl, f.code, f.flow, f.regs, f.pcs, f.calls, f.frame.at = nil, nil, nil, nil, nil, nil, nil
	}
}

// add adds a function to the program.
func (c *compiler) add(code *ptx.Code) (*function, error) {
	if f := c.funcs[code.Func]; f != nil {
		return f, nil
	}
	f := &function{decl: code.Func, code: code}
	c.funcs[code.Func] = f
	c.queue = append(c.queue, f)
	if err := c.chargeFunction(code); err != nil {
		return nil, err
	}
	if err := c.loader.cancelled(); err != nil {
		return nil, err
	}
	g, err := flow.Build(code)
	if err != nil {
		return nil, c.invalid("%v", err)
	}
	f.flow = newBranches(code, g)
	c.assign(f, g)
	if !code.Func.Entry {
		for _, s := range code.Params {
			p, err := c.formal(f, s)
			if err != nil {
				return nil, err
			}
			f.params = append(f.params, p)
		}
		for _, s := range code.Returns {
			p, err := c.formal(f, s)
			if err != nil {
				return nil, err
			}
			f.returns = append(f.returns, p)
		}
	}
	for _, s := range code.Vars {
		v := s.Var
		if v == nil {
			continue
		}
		switch v.Space {
		case ptx.SharedSpace:
			if err := c.placeShared(v); err != nil {
				return nil, err
			}
		case ptx.LocalSpace, ptx.ParamSpace:
			if err := c.placeLocal(f, v); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func (c *compiler) placeShared(v *ptx.Var) error {
	if v.Linking == ptx.Extern {
		return nil // the dynamic part
	}
	n, ok := sizeOf(v, c.loader.opts.MaxShared)
	if !ok || c.shared.size+n > c.loader.opts.MaxShared {
		return c.unsupported("more than %d bytes of shared memory", c.loader.opts.MaxShared)
	}
	c.shared.add(v, n)
	return nil
}

func (c *compiler) placeLocal(f *function, v *ptx.Var) error {
	n, ok := sizeOf(v, maxFrame)
	if !ok || f.frame.size+n > maxFrame {
		return c.unsupported("function %s: more than %d bytes of local memory", f.decl.Name, maxFrame)
	}
	f.frame.add(v, n)
	return nil
}

// formal assigns a place to a device function's parameter.
func (c *compiler) formal(f *function, s *ptx.Symbol) (formal, error) {
	if s.Kind == ptx.SymReg {
		r := f.regs[s.Index]
		return formal{reg: r, size: uint32(max(s.Type.Size(), 1))}, nil
	}
	if err := c.placeLocal(f, s.Var); err != nil {
		return formal{}, err
	}
	n, _ := sizeOf(s.Var, maxFrame)
	return formal{at: uint32(f.frame.at[s.Var]), size: uint32(n)}, nil
}

// localBytes returns the local memory that a thread needs: that of the deepest chain of calls, or a
// stack if the depth is unknown.
func (c *compiler) localBytes() uint64 {
	var deepest uint64
	depth := map[*function]uint64{}
	state := map[*function]int{}
	stack := uint64(0)
	var walk func(f *function) uint64
	walk = func(f *function) uint64 {
		if state[f] == 2 {
			return depth[f]
		}
		if state[f] == 1 {
			stack = c.loader.opts.StackBytes
			return 0
		}
		state[f] = 1
		var below uint64
		for _, g := range f.calls {
			below = max(below, walk(g))
		}
		if f.unknown {
			stack = c.loader.opts.StackBytes
		}
		state[f] = 2
		depth[f] = alignUp(f.frame.size, 16) + below
		return depth[f]
	}
	deepest = walk(c.queue[0])
	return alignUp(deepest+stack, 16)
}

// finish computes for each instruction how many instructions run from there without a change of
// path, and their cost.
func (c *compiler) finish() {
	code := c.code
	for i := len(code) - 1; i >= 0; i-- {
		in := &code[i]
		if in.run == 0 {
			continue
		}
		if next := code[i+1].run; next > 0 && next < maxRun {
			in.run = next + 1
			in.cost += code[i+1].cost
		}
	}
	c.prog.code = code
	c.prog.entry = c.queue[0].entry
}

// maxRun limits the instructions that a warp executes between two checks of its budget.
const maxRun = 1024

// pressure estimates how many 32-bit registers a thread needs.
func (c *compiler) pressure() int {
	n := 0
	for _, f := range c.queue {
		n = max(n, f.pressure)
	}
	return n
}

// findRecursion numbers the functions so that two have the same number if and only if they can call
// one another: Tarjan's strongly connected components.
func (c *compiler) findRecursion() {
	order, low := map[*function]int{}, map[*function]int{}
	var stack []*function
	var visit func(f *function)
	visit = func(f *function) {
		order[f] = len(order) + 1
		low[f] = order[f]
		stack = append(stack, f)
		for _, g := range f.calls {
			if order[g] == 0 {
				visit(g)
				low[f] = min(low[f], low[g])
			} else if g.group == 0 { // it is still on the stack
				low[f] = min(low[f], order[g])
			}
		}
		if low[f] != order[f] {
			return
		}
		for {
			g := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			g.group = order[f]
			if g == f {
				return
			}
		}
	}
	visit(c.queue[0])
}
