package executor

import (
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// promptContext is a context whose channels know at once about when a launch ran, and keep outcomes
// no longer than they must.
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

// A launch that was answered promptly is accounted for, however many commands come behind it at
// once.
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

// A guest that takes no answers does not count as working because of that.
func TestUnansweredIsNoWork(t *testing.T) {
	r := newFakeRig(t)
	g := r.open()
	for range 2 { // until the completion ring is full, and then the channel's own record
		for g.sub.Reserve(1) {
			g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
		}
		for range 10 {
			r.x.Step(false)
		}
	}
	if !r.x.channels[0].busy() {
		t.Fatal("all is answered")
	}
	slot, now := r.page.Context(0), r.x.o.Clock.Now()
	if more := slot.Worked(now+time.Second) - slot.Worked(now); more != 0 {
		t.Errorf("%v of work in a second without any", more)
	}
}
