package executor

import (
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// promptContext is a context whose channels know at once about when a command ran, and keep outcomes
// no longer than they must. It records launches and the times that are read.
type promptContext struct {
	*fakeContext
	calls *[]string
	busy  *bool // commands don't end
}

type promptChannel struct {
	*fakeChannel
	promptContext
	reached gpu.Fence
}

func (c promptContext) NewChannel() (gpu.Channel, error) {
	return &promptChannel{fakeChannel: &fakeChannel{c: c.fakeContext}, promptContext: c}, nil
}

func (c *promptChannel) Close() error { return nil }

func (c *promptChannel) Done() gpu.Fence {
	if !*c.busy {
		c.reached = c.last
	}
	return c.reached
}

func (c *promptChannel) Launch(l *gpu.Launch) (gpu.Fence, error) {
	*c.calls = append(*c.calls, "launch")
	return c.fakeChannel.Launch(l)
}

func (c *promptChannel) Outcome(f gpu.Fence) gpu.Outcome {
	*c.calls = append(*c.calls, "read")
	if c.last-f >= gpu.OutcomesKept {
		return gpu.Outcome{Err: gpu.ErrNotFound}
	}
	return gpu.Outcome{Start: time.Duration(10 * f), End: time.Duration(10*f + 10)}
}

func (*promptChannel) Glimpse(gpu.Fence) (gpu.Outcome, bool) {
	return gpu.Outcome{Start: 12, End: 18}, true
}

// promptRig is a rig with such a context and a guest's end.
type promptRig struct {
	*rig
	g     *guestEnd
	l     abi.Launch
	calls []string
	busy  bool
}

func newPromptRig(t *testing.T) *promptRig {
	r := &promptRig{rig: newFakeRig(t)}
	r.x.o.Context = promptContext{r.ctx.(*fakeContext), &r.calls, &r.busy}
	r.x.o.FetchLimit = DeepFetchLimit
	r.g = r.open()
	r.l = abi.Launch{Function: r.g.load("fake", "plain"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	return r
}

func (r *promptRig) launch() { r.g.send(abi.Header{Op: abi.OpLaunch}, r.l, make([]byte, 8)...) }

// answer has the GPU end n commands that it was given before, and takes their answers.
func (r *promptRig) answer(n int) {
	r.busy = true
	r.x.Step(false)
	r.busy = false
	r.g.receive(n)
}

// The times of launches and copies that were answered promptly are not read before the guest's next
// launch is on the GPU, if that comes soon; if none comes, after a while, or before the executor
// sleeps.
func TestAccountingWaitsForTheNextLaunch(t *testing.T) {
	r := newPromptRig(t)
	mem := r.g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	idle := func(n int) {
		for range n {
			r.x.Step(false)
		}
	}
	for range 3 {
		r.g.send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem, Src: staging, Size: 64})
		r.launch()
		r.g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: 64})
		r.answer(3)
		idle(accountPolls / 2)
	}
	if want := []string{"launch", "launch", "read", "launch", "read"}; !slices.Equal(r.calls, want) {
		t.Errorf("%v, want %v", r.calls, want)
	}
	accounted := func(n int, when string) {
		t.Helper()
		if c := r.page.Context(0).Counters(); c.Kernels != uint64(n) || c.GPUTime != time.Duration(n*10) || c.CopiedBytes != 6*64 {
			t.Errorf("%s, %d launches: %+v", when, n, c)
		}
	}
	accounted(2, "while more may come")
	idle(accountPolls)
	accounted(3, "where no more came")
	r.launch()
	r.answer(1)
	r.x.arm(false)
	accounted(4, "when the executor sleeps")
	r.launch()
	r.answer(1)
	r.x.Step(true)
	accounted(5, "when the guest is suspended")
	r.x.o.FetchLimit = ShallowFetchLimit
	r.launch()
	r.answer(1)
	accounted(6, "where launches wait for it")
}

// A launch that was answered promptly is accounted for, however many commands come behind it at
// once.
func TestAnsweredLaunchesAreAccounted(t *testing.T) {
	r := newPromptRig(t)
	g := r.g
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	r.launch()
	n := 1
	for ; g.sub.Reserve(1); n++ {
		g.send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem, Src: staging, Size: 4})
	}
	if n <= gpu.OutcomesKept {
		t.Fatalf("%d commands are too few", n)
	}
	g.receive(n)
	r.x.arm(false)
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
