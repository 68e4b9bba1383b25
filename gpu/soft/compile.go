package soft

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// Limits of one module, whose source comes from a guest: the host's resources that it may use while
// it is compiled and afterwards. Code that compiles to a few hundred kilobytes of a real GPU's
// instructions stays well below them.
const (
	maxSource       = 16 << 20  // bytes of PTX
	maxStatements   = 512 << 10 // of the source
	maxOperands     = 2 << 20   // of the source
	maxInstructions = 256 << 10 // of all kernels together, each with the functions that it calls
	maxKernels      = 1<<12 - 1 // kernel numbers have twelve bits
	maxParams       = 128 << 10 // of all kernels, since the program receives each
	codeShares      = 4         // one owner may have 1/codeShares of Options.CodeBytes
)

// recovering runs the compiler on a module. If the compiler panics, which is a bug, the module is
// refused and the GPU goes on.
func (e *Engine) recovering(compile func() (*engineModule, error)) (m *engineModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			e.o.Log.Error("soft GPU: compiler failed", "panic", r, "stack", string(debug.Stack()))
			m, err = nil, fmt.Errorf("compiler failed: %v: %w", r, gpu.ErrInvalidModule)
		}
	}()
	return compile()
}

// compile parses and compiles PTX for a stack of the given size. It gives up when ctx ends.
func (e *Engine) compile(ctx context.Context, image []byte, stack uint64) (*engineModule, error) {
	// PTX from CUDA's tools ends with a NUL.
	for len(image) > 0 && image[len(image)-1] == 0 {
		image = image[:len(image)-1]
	}
	tree, err := ptx.Options{MaxBytes: maxSource, MaxStatements: maxStatements, MaxOperands: maxOperands}.ParseContext(ctx, string(image))
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrInvalidModule, err)
	}
	loaded, err := simt.Load(ctx, tree, simt.Options{
		MaxInstructions: maxInstructions, MaxKernels: maxKernels, MaxShared: e.o.Machine.SM.Shared, StackBytes: stack, Costs: e.costs,
	})
	if err != nil {
		return nil, err
	}
	m := &engineModule{m: loaded, code: loaded.CodeBytes() + uint64(len(image))} // names are parts of the source
	m.mallocs = slices.ContainsFunc(tree.Items, func(i ptx.Item) bool {
		f, ok := i.(*ptx.Func)
		return ok && f.Name == "malloc"
	})
	params := 0
	warps := uint64(e.o.Machine.SMs) * uint64(e.o.Machine.SM.Threads/32)
	for _, k := range loaded.Kernels() {
		params += len(k.Attributes().Params)
		m.local = max(m.local, k.LocalPerWarp()*warps)
	}
	if params > maxParams {
		return nil, fmt.Errorf("module with %d parameters of kernels: want at most %d: %w", params, maxParams, gpu.ErrUnsupported)
	}
	return m, nil
}
