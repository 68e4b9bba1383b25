package executor

import (
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// promptContext is a context whose channels know at once about when a launch ran, and
// remember outcomes no longer than they must.
type promptContext struct{ *fakeContext }

type promptChannel struct{ *fakeChannel }

func (c promptContext) NewChannel() (gpu.Channel, error) {
	return &promptChannel{&fakeChannel{c: c.fakeContext}}, nil
}

func (c *promptChannel) Outcome(f gpu.Fence) gpu.Outcome {
	if c.last-f >= gpu.OutcomesKept {
		return gpu.Outcome{Err: gpu.ErrNotFound}
	}
	return gpu.Outcome{Start: 10, End: 20}
}

func (*promptChannel) Glimpse(gpu.Fence) (gpu.Outcome, bool) {
	return gpu.Outcome{Start: 12, End: 18}, true
}

// A launch that was answered promptly is accounted for, however much comes behind it at
// one time.
func TestAnsweredLaunchesAreAccounted(t *testing.T) {
	r := newFakeRig(t)
	r.x.o.Context = promptContext{r.ctx.(*fakeContext)}
	g := r.open()
	l := abi.Launch{Function: g.load("fake", "plain"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	g.send(abi.Header{Op: abi.OpLaunch}, l, make([]byte, 8)...)
	n := 1
	for ; g.sub.Reserve(1); n++ {
		g.send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem, Src: staging, Size: 4})
	}
	if n <= gpu.OutcomesKept {
		t.Fatalf("%d commands are too few", n)
	}
	g.receive(n)
	if c := r.page.Context(0).Counters(); c.GPUTime != 10 || c.Kernels != 1 || c.Errors != 0 {
		t.Errorf("accounted: %+v", c)
	}
}
