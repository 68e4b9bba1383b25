package nvidia

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/ptx/variables"
)

// Module is loaded code. It implements [gpu.Module].
type Module struct {
	c      *Context
	m      cuda.Module
	text   string // if it is PTX, for dispatchers
	charge uint64
	local  uint64 // bytes per thread of the kernel that needs most

	mu        sync.Mutex
	functions map[string]*Function
	over      atomic.Bool // it was unloaded
}

// LoadModule loads PTX, a cubin or a fatbin. The error includes the compiler's message if it
// rejects PTX.
func (c *Context) LoadModule(image []byte) (gpu.Module, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	m := &Module{c: c, functions: map[string]*Function{}, text: keptText(image)}
	size, sure := imageBytes(image)
	m.charge = charged(size)
	c.settleFrees()
	if err := c.memory.take(m.charge, "a module"); err != nil {
		return nil, err
	}
	var log string
	var before, after uint64 // free memory
	err := c.parked(func() error {
		return c.do("load a module", func() (err error) {
			if before, _, err = c.drv.MemGetInfo(); err != nil {
				return err
			}
			if m.m, log, err = c.drv.ModuleLoadData(image); err != nil {
				return err
			}
			after, _, err = c.drv.MemGetInfo()
			return err
		})
	})
	if log = strings.TrimSpace(log); err != nil && log != "" && c.fault.Load() == nil {
		err = fmt.Errorf("%w: %s", err, log)
	}
	switch {
	case err != nil && m.m != 0:
		return nil, errors.Join(err, c.parked(m.unload))
	case err != nil:
		c.memory.give(m.charge)
		return nil, err
	}
	err = c.do("look at a module's kernels", m.measure)
	if more := before - min(before, after); err == nil && !sure && more > m.charge {
		// It includes what others took meanwhile, which is better than no charge.
		if err = c.memory.take(more-m.charge, "a module's variables"); err == nil {
			m.charge = more
		}
	}
	if err == nil {
		err = c.admit(m)
	}
	if err != nil {
		return nil, errors.Join(err, c.parked(m.unload))
	}
	return m, nil
}

// measure determines the local memory per thread that the module's kernels need.
func (m *Module) measure() error {
	all, err := m.c.drv.ModuleEnumerateFunctions(m.m)
	if err != nil {
		return err
	}
	for _, f := range all {
		n, err := m.c.drv.FuncGetAttribute(f, cuda.FuncLocalSizeBytes)
		if err != nil {
			return err
		}
		m.local = max(m.local, uint64(n))
	}
	return nil
}

// admit charges the memory that the driver sets aside for local memory: for all threads that the
// GPU holds, by the kernel that needs most.
func (c *Context) admit(m *Module) error {
	c.settleFrees()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.d.info.Properties
	need := m.local * uint64(p.SMs) * uint64(p.ThreadsPerSM)
	if need > c.local {
		// The charge stays: the driver keeps the memory.
		if err := c.memory.take(need-c.local, fmt.Sprintf("local memory of %d bytes a thread", m.local)); err != nil {
			return err
		}
		c.local = need
	}
	return nil
}

// unload frees the module.
func (m *Module) unload() error {
	m.c.table.forget(m)
	err := m.c.do("unload a module", func() error { return m.c.drv.ModuleUnload(m.m) })
	if err == nil {
		m.c.memory.give(m.charge)
	}
	return err
}

// Unload frees the module. Its kernels must have ended.
func (m *Module) Unload() error {
	m.mu.Lock()
	over := m.over.Swap(true)
	m.mu.Unlock()
	if over {
		return fmt.Errorf("unload a module: %w", gpu.ErrNotFound)
	}
	if err := m.c.usable(); err != nil {
		return err
	}
	return m.c.parked(m.unload)
}

// usable returns an error if the module can't be used.
func (m *Module) usable() error {
	if m.over.Load() {
		return fmt.Errorf("module was unloaded: %w", gpu.ErrNotFound)
	}
	return m.c.usable()
}

// Function finds a kernel.
func (m *Module) Function(name string) (gpu.Function, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	if f := m.functions[name]; f != nil {
		return f, nil
	}
	f := &Function{m: m}
	if strings.Contains(name, "\x00") {
		return nil, fmt.Errorf("kernel %q: %w", name, gpu.ErrNotFound)
	}
	if err := m.c.do("kernel "+name, func() (err error) {
		if f.f, err = m.c.drv.ModuleGetFunction(m.m, name); err != nil {
			return err
		}
		return f.query(name)
	}); err != nil {
		return nil, err
	}
	m.functions[name] = f
	return f, nil
}

// Global finds a variable. Commands may name it from then on.
func (m *Module) Global(name string) (gpu.Ptr, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.lookUp(name)
	if err != nil {
		return 0, 0, err
	}
	if p.Bytes > 0 { // an empty variable shares its address
		m.c.table.add(allocation{base: p.Address, size: p.Bytes, module: m})
	}
	return gpu.Ptr(p.Address), p.Bytes, nil
}

// place finds a variable that no command names yet.
func (m *Module) place(name string) (variables.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(name)
}

// lookUp asks the driver for a variable's place. The caller holds mu.
func (m *Module) lookUp(name string) (p variables.Place, err error) {
	if err := m.usable(); err != nil {
		return p, err
	}
	if strings.Contains(name, "\x00") {
		return p, fmt.Errorf("variable %q: %w", name, gpu.ErrNotFound)
	}
	err = m.c.do("variable "+name, func() error {
		at, size, err := m.c.drv.ModuleGetGlobal(m.m, name)
		p = variables.Place{Address: uint64(at), Bytes: size}
		return err
	})
	return p, err
}

// Function is a kernel. It implements [gpu.Function].
type Function struct {
	m     *Module
	f     cuda.Function
	attrs gpu.FunctionAttributes

	mu     sync.Mutex
	shared uint64 // dynamic shared memory in bytes that the driver allows so far
}

// defaultShared is the shared memory, static and dynamic, that the driver allows a kernel by
// default.
const defaultShared = 48 << 10

// query queries the driver about the kernel.
func (f *Function) query(name string) error {
	drv := f.m.c.drv
	a := &f.attrs
	a.Name = name
	for _, q := range []struct {
		attr cuda.FunctionAttribute
		set  func(v int)
	}{
		{cuda.FuncMaxThreadsPerBlock, func(v int) { a.MaxThreadsPerBlock = v }},
		{cuda.FuncSharedSizeBytes, func(v int) { a.SharedBytes = uint64(v) }},
		{cuda.FuncConstSizeBytes, func(v int) { a.ConstBytes = uint64(v) }},
		{cuda.FuncLocalSizeBytes, func(v int) { a.LocalBytes = uint64(v) }},
		{cuda.FuncNumRegs, func(v int) { a.Registers = v }},
		{cuda.FuncPTXVersion, func(v int) { a.PTXVersion = v }},
		{cuda.FuncBinaryVersion, func(v int) { a.BinaryVersion = v }},
	} {
		v, err := drv.FuncGetAttribute(f.f, q.attr)
		if err != nil {
			return err
		}
		q.set(v)
	}
	for i := 0; ; i++ {
		offset, size, err := drv.FuncGetParamInfo(f.f, i)
		if err == cuda.ErrInvalidValue {
			break
		}
		if err != nil {
			return err
		}
		a.Params = append(a.Params, gpu.Param{Offset: offset, Size: size})
		a.ParamBytes = max(a.ParamBytes, offset+size)
	}
	return nil
}

// Attributes returns the kernel's attributes.
func (f *Function) Attributes() gpu.FunctionAttributes { return f.attrs }

// Occupancy returns the number of blocks that an SM holds.
func (f *Function) Occupancy(blockThreads int, sharedBytes uint64) (int, error) {
	if err := f.m.usable(); err != nil {
		return 0, err
	}
	if most := f.m.c.d.info.Properties.SharedPerBlockOptin; sharedBytes > most || f.attrs.SharedBytes+sharedBytes > most {
		return 0, nil
	}
	var n int
	err := f.m.c.do("occupancy of kernel "+f.attrs.Name, func() (err error) {
		if err := f.allow(sharedBytes); err != nil {
			return err
		}
		n, err = f.m.c.drv.OccupancyMaxActiveBlocksPerMultiprocessor(f.f, blockThreads, sharedBytes)
		return err
	})
	return n, err
}

// allow makes the driver allow so much dynamic shared memory, if necessary. The context is current.
func (f *Function) allow(shared uint64) error {
	if f.attrs.SharedBytes+shared <= defaultShared {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if shared <= f.shared {
		return nil
	}
	if err := f.m.c.drv.FuncSetAttribute(f.f, cuda.FuncMaxDynamicSharedSize, int(shared)); err != nil {
		return err
	}
	f.shared = shared
	return nil
}

// check returns an error for a launch that the kernel can't take.
func (f *Function) check(c *Context, l *gpu.Launch) error {
	p := &c.d.info.Properties
	wrong := ""
	switch {
	case f.m.c != c:
		wrong = "the kernel is another context's"
	case f.m.over.Load(): // the driver would use freed code
		wrong = "its module was unloaded"
	case l.Grid.X == 0 || l.Grid.Y == 0 || l.Grid.Z == 0 || l.Block.X == 0 || l.Block.Y == 0 || l.Block.Z == 0:
		wrong = "an empty grid or block"
	case l.Grid.X > p.MaxGrid.X || l.Grid.Y > p.MaxGrid.Y || l.Grid.Z > p.MaxGrid.Z:
		wrong = "the grid is too large"
	case l.Block.X > p.MaxBlockDim.X || l.Block.Y > p.MaxBlockDim.Y || l.Block.Z > p.MaxBlockDim.Z,
		l.Block.Count() > uint64(f.attrs.MaxThreadsPerBlock):
		wrong = fmt.Sprintf("at most %d threads a block", f.attrs.MaxThreadsPerBlock)
	case l.SharedBytes > p.SharedPerBlockOptin || f.attrs.SharedBytes+l.SharedBytes > p.SharedPerBlockOptin:
		wrong = fmt.Sprintf("at most %d bytes of shared memory a block", p.SharedPerBlockOptin)
	case uint64(len(l.Params)) < f.attrs.ParamBytes:
		wrong = fmt.Sprintf("%d bytes of parameters, want %d", len(l.Params), f.attrs.ParamBytes)
	default:
		return nil
	}
	return fmt.Errorf("launch %s, grid %v of blocks %v with %d bytes of shared memory: %s: %w",
		f.attrs.Name, l.Grid, l.Block, l.SharedBytes, wrong, gpu.ErrInvalidLaunch)
}
