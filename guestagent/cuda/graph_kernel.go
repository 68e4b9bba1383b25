package cuda

import (
	"bytes"
	"slices"
)

// KernelNodeParams is CUDA_KERNEL_NODE_PARAMS. Its version 1 ends before Kernel.
type KernelNodeParams struct {
	Function    Handle
	Grid, Block [3]uint32
	SharedBytes uint32
	_           uint32
	Params      *Pointer
	Extra       *Pointer
	Kernel      Handle
	Context     Handle
}

// KernelNodeParamsV1 is CUDA_KERNEL_NODE_PARAMS_v1.
type KernelNodeParamsV1 struct {
	Function    Handle
	Grid, Block [3]uint32
	SharedBytes uint32
	_           uint32
	Params      *Pointer
	Extra       *Pointer
}

func (p *KernelNodeParamsV1) widened() *KernelNodeParams {
	if p == nil {
		return nil
	}
	return &KernelNodeParams{Function: p.Function, Grid: p.Grid, Block: p.Block, SharedBytes: p.SharedBytes, Params: p.Params, Extra: p.Extra}
}

// kernelNode launches a kernel.
type kernelNode struct {
	f      *function
	l      configuration
	params []byte    // as the kernel's parameter space has them
	each   []Pointer // of each parameter, in params
	attrs  map[uint32]LaunchAttributeValue
}

func newKernelNode(f *function, l configuration, params []byte) *kernelNode {
	k := &kernelNode{f: f, l: l, params: bytes.Clone(params)}
	k.point()
	return k
}

// point finds the parameters' addresses, for programs that ask for them.
func (k *kernelNode) point() {
	k.each = make([]Pointer, len(k.f.params))
	for i, p := range k.f.params {
		k.each[i] = offset(startOf(k.params), uint64(p.Offset))
	}
}

func (k *kernelNode) kind() uint32 { return GraphNodeTypeKernel }

func (k *kernelNode) clone() operation {
	n := newKernelNode(k.f, k.l, k.params)
	for id, v := range k.attrs {
		n.set(id, v)
	}
	return n
}

func (k *kernelNode) run(c *Call, s *stream) Result {
	c.launch.params = append(c.launch.params[:0], k.params...)
	return c.start(s, k.f, &k.l)
}

// set sets an attribute. Those that only advise change nothing.
func (k *kernelNode) set(id uint32, v LaunchAttributeValue) {
	if k.attrs == nil {
		k.attrs = map[uint32]LaunchAttributeValue{}
	}
	k.attrs[id] = v
	_ = k.l.apply(&LaunchAttribute{ID: id, Value: v}) // one of nodeAttributes
}

// kernelOf returns the node that a program describes.
func (c *Call) kernelOf(p *KernelNodeParams) (*kernelNode, Result) {
	if p == nil {
		return nil, ErrorInvalidValue
	}
	h := p.Function
	if h == 0 {
		h = p.Kernel
	}
	f, r := c.function(h)
	if r != Success {
		return nil, r
	}
	l := configuration{grid: p.Grid, block: p.Block, shared: p.SharedBytes}
	if r := f.check(&l); r != Success {
		return nil, r
	}
	if r := c.gather(f, p.Params, p.Extra); r != Success {
		return nil, r
	}
	return newKernelNode(f, l, c.launch.params), Success
}

// GraphAddKernelNodeV2 is cuGraphAddKernelNode_v2.
func (c *Call) GraphAddKernelNodeV2(out *Handle, g Handle, deps *Handle, count uint64, p *KernelNodeParams) Result {
	k, r := c.kernelOf(p)
	if r != Success {
		return r
	}
	return c.addNode(out, g, deps, count, k)
}

// GraphAddKernelNode is cuGraphAddKernelNode.
func (c *Call) GraphAddKernelNode(out *Handle, g Handle, deps *Handle, count uint64, p *KernelNodeParamsV1) Result {
	return c.GraphAddKernelNodeV2(out, g, deps, count, p.widened())
}

// GraphKernelNodeGetParamsV2 is cuGraphKernelNodeGetParams_v2. The parameters' addresses are valid
// while the node is and its parameters are not set.
func (c *Call) GraphKernelNodeGetParamsV2(h Handle, out *KernelNodeParams) Result {
	return withOperation(c, h, out != nil, func(k *kernelNode) Result {
		*out = k.description()
		return Success
	})
}

func (k *kernelNode) description() KernelNodeParams {
	return KernelNodeParams{
		Function: k.f.handle, Grid: k.l.grid, Block: k.l.block, SharedBytes: k.l.shared,
		Params: pointers(k.each), Context: k.f.m.x.handle,
	}
}

// GraphKernelNodeGetParams is cuGraphKernelNodeGetParams.
func (c *Call) GraphKernelNodeGetParams(h Handle, out *KernelNodeParamsV1) Result {
	return withOperation(c, h, out != nil, func(k *kernelNode) Result {
		*out = KernelNodeParamsV1{
			Function: k.f.handle, Grid: k.l.grid, Block: k.l.block, SharedBytes: k.l.shared, Params: pointers(k.each),
		}
		return Success
	})
}

// GraphKernelNodeSetParamsV2 is cuGraphKernelNodeSetParams_v2.
func (c *Call) GraphKernelNodeSetParamsV2(h Handle, p *KernelNodeParams) Result {
	k, r := c.kernelOf(p)
	if r != Success {
		return r
	}
	return withOperation(c, h, true, func(old *kernelNode) Result {
		old.replace(k)
		return Success
	})
}

// replace takes over what k launches. Attributes stay.
func (old *kernelNode) replace(k *kernelNode) {
	attrs := old.attrs
	*old = *k
	old.attrs = nil
	for id, v := range attrs {
		old.set(id, v)
	}
}

// GraphKernelNodeSetParams is cuGraphKernelNodeSetParams.
func (c *Call) GraphKernelNodeSetParams(h Handle, p *KernelNodeParamsV1) Result {
	return c.GraphKernelNodeSetParamsV2(h, p.widened())
}

// nodeAttributes are the attributes that a kernel node may have.
var nodeAttributes = []uint32{
	LaunchAttributeAccessPolicyWindow, LaunchAttributeCooperative, LaunchAttributePriority, LaunchAttributeMemSyncDomainMap,
	LaunchAttributeMemSyncDomain, LaunchAttributePreferredSharedMemoryCarveout,
}

// GraphKernelNodeGetAttribute is cuGraphKernelNodeGetAttribute.
func (c *Call) GraphKernelNodeGetAttribute(h Handle, id uint32, out *LaunchAttributeValue) Result {
	if !slices.Contains(nodeAttributes, id) {
		return ErrorInvalidValue
	}
	return withOperation(c, h, out != nil, func(k *kernelNode) Result {
		v := k.attrs[id]
		if id == LaunchAttributeCooperative && k.l.cooperative {
			v[0] = 1
		}
		*out = v
		return Success
	})
}

// GraphKernelNodeSetAttribute is cuGraphKernelNodeSetAttribute.
func (c *Call) GraphKernelNodeSetAttribute(h Handle, id uint32, in *LaunchAttributeValue) Result {
	if !slices.Contains(nodeAttributes, id) {
		return ErrorInvalidValue
	}
	return withOperation(c, h, in != nil, func(k *kernelNode) Result {
		k.set(id, *in)
		return Success
	})
}

// GraphKernelNodeCopyAttributes is cuGraphKernelNodeCopyAttributes.
func (c *Call) GraphKernelNodeCopyAttributes(to, from Handle) Result {
	var attrs map[uint32]LaunchAttributeValue
	if r := withOperation(c, from, true, func(k *kernelNode) Result {
		attrs = k.attrs
		return Success
	}); r != Success {
		return r
	}
	return withOperation(c, to, true, func(k *kernelNode) Result {
		for id, v := range attrs {
			k.set(id, v)
		}
		return Success
	})
}
