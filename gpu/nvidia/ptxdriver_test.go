package nvidia

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// ptxDriver is the driver in software with kernels that execute their PTX, on the machine of the GPU
// in software. Names of kernels are unique over all modules.
type ptxDriver struct {
	*cudatest.GPU
	t     *testing.T
	begin time.Time

	mu      sync.Mutex
	kernels map[string]*simt.Kernel
	modules map[cuda.Module]*ptxModule
}

type ptxModule struct {
	*simt.Module
	base uint64 // of its variables
}

// newPTXDriver returns a driver whose modules may have the kernels named, with one parameter of 64 bits, and dispatchers.
func newPTXDriver(t *testing.T, names ...string) *ptxDriver {
	d := &ptxDriver{
		GPU: cudatest.New(), t: t, begin: time.Now(), kernels: map[string]*simt.Kernel{}, modules: map[cuda.Module]*ptxModule{},
	}
	for _, name := range append(names, "vgpud_dispatch") {
		d.Kernels[name] = func(l *cudatest.Launch) error { return d.run(name, l) }
	}
	d.Attributes["vgpud_dispatch"] = cudatest.Attributes{Params: []int{8, 8, 4}}
	return d
}

// images is behind the variables of all modules so far: they stay mapped until the process ends.
var images atomic.Uint64

// ModuleLoadData also loads the module's code and places its variables, in memory of the host's at addresses as a GPU's.
func (d *ptxDriver) ModuleLoadData(image []byte) (cuda.Module, string, error) {
	m, log, err := d.GPU.ModuleLoadData(image)
	if err != nil {
		return m, log, err
	}
	parsed, err := ptx.Parse(string(image))
	if err != nil {
		return 0, err.Error(), cuda.ErrInvalidPTX
	}
	loaded, err := simt.Load(d.t.Context(), parsed, simt.Options{})
	if err != nil {
		return 0, err.Error(), cuda.ErrInvalidPTX
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &ptxModule{Module: loaded}
	if n := int(loaded.ImageBytes()+hostPage-1) &^ (hostPage - 1); n > 0 {
		p.base = 0x2000_0000_0000 + images.Add(uint64(n)) - uint64(n)
		f, _ := sealedFile(d.t, n)
		mem, err := mapAt(f, 0, n, gpu.Ptr(p.base))
		if err != nil {
			return 0, fmt.Sprintf("variables: %v", err), cuda.ErrOutOfMemory
		}
		copy(mem, loaded.Place(p.base))
		if err := d.MemHostRegister(mem, 0); err != nil {
			return 0, "", err
		}
	}
	for _, k := range loaded.Kernels() {
		d.kernels[k.Name()] = k
	}
	d.modules[m] = p
	return m, log, nil
}

// ModuleGetGlobal returns a placed variable.
func (d *ptxDriver) ModuleGetGlobal(m cuda.Module, name string) (cuda.DevicePtr, uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, n, ok := d.modules[m].Global(name)
	if !ok {
		return 0, 0, cuda.ErrNotFound
	}
	return cuda.DevicePtr(d.modules[m].base + at), n, nil
}

// reach returns the address at which the machine reaches memory: it has room for global memory below the
// host's usual addresses.
func reach(at uint64) uint64 {
	if at >= simt.GlobalLimit {
		at -= 0x6000_0000_0000
	}
	return at
}

// run executes a launch to its end. A dispatcher's first parameters are addresses of the host's memory.
func (d *ptxDriver) run(name string, l *cudatest.Launch) error {
	d.mu.Lock()
	k := d.kernels[name]
	d.mu.Unlock()
	mem := new(simt.Memory)
	var errs error
	d.Each(func(at cuda.DevicePtr, m []byte) {
		if err := mem.Map(reach(uint64(at)), m); err != nil {
			errs = err
		}
	})
	if errs != nil {
		d.t.Error(errs)
		return errs
	}
	if name == "vgpud_dispatch" {
		for _, at := range []int{0, 8} {
			binary.LittleEndian.PutUint64(l.Params[at:], reach(binary.LittleEndian.Uint64(l.Params[at:])))
		}
	}
	dim := func(d [3]uint32) gpu.Dim3 { return gpu.Dim3{X: d[0], Y: d[1], Z: d[2]} }
	g, err := simt.NewGrid(simt.Launch{
		Kernel: k, Grid: dim(l.Grid), Block: dim(l.Block), SharedBytes: uint64(l.Shared), Params: l.Params, Memory: mem, SMs: 4, Print: io.Discard,
	})
	if err != nil {
		d.t.Error(err)
		return err
	}
	var blocks []*simt.Block
	for b := g.StartBlock(0); b != nil; b = g.StartBlock(len(blocks) % 4) {
		blocks = append(blocks, b)
	}
	for cycle := uint64(0); !g.Done(); runtime.Gosched() {
		for i, b := range blocks {
			if b == nil {
				continue
			}
			r := b.Step(simt.Now{Cycle: cycle, Nanos: uint64(time.Since(d.begin)), CyclesPerUS: 1000}, 1000)
			cycle += r.Cycles
			switch r.State {
			case simt.Faulted:
				d.t.Log(r.Fault)
				return cuda.ErrIllegalAddress
			case simt.Running, simt.Sleeping:
			default:
				blocks[i] = nil
			}
		}
	}
	return nil
}
