package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// fakeGPU is a GPU in which every command is done at once, and no kernel does anything. It shows
// the executor's own cost.
type fakeGPU struct{}

func (fakeGPU) Properties() gpu.Properties {
	dim := gpu.Dim3{X: 1 << 30, Y: 1 << 15, Z: 1 << 15}
	return gpu.Properties{Name: "fake", SMs: 4, ThreadsPerBlock: 1024, MaxGrid: dim, MaxBlockDim: gpu.Dim3{X: 1024, Y: 1024, Z: 64}}
}
func (fakeGPU) Now() (time.Duration, error) { return 1, nil }
func (fakeGPU) NewContext(context.Context, gpu.ContextOptions) (gpu.Context, error) {
	return &fakeContext{memory: make([]byte, 1<<20), next: fakeBase}, nil
}
func (fakeGPU) Close() error { return nil }

const fakeBase = 1 << 32

type fakeContext struct {
	memory []byte
	next   gpu.Ptr
}

func (*fakeContext) Group() gpu.GroupID { return 1 }
func (c *fakeContext) Alloc(size uint64) (gpu.Ptr, error) {
	p := c.next
	c.next += gpu.Ptr(roundUp(size, 256))
	return p, nil
}
func (*fakeContext) Free(gpu.Ptr) error                                 { return nil }
func (*fakeContext) Memory() (free, total uint64, err error)            { return 1 << 30, 1 << 30, nil }
func (*fakeContext) LoadModule([]byte) (gpu.Module, error)              { return fakeModule{}, nil }
func (c *fakeContext) NewChannel() (gpu.Channel, error)                 { return &fakeChannel{c: c}, nil }
func (*fakeContext) Printf(int) ([]byte, error)                         { return nil, nil }
func (*fakeContext) Fault() error                                       { return nil }
func (*fakeContext) Close() error                                       { return nil }
func (c *fakeContext) at(p gpu.Ptr, n int) []byte                       { return c.memory[p-fakeBase:][:n] }
func (fakeModule) Function(name string) (gpu.Function, error)           { return fakeFunction{name}, nil }
func (fakeModule) Global(string) (p gpu.Ptr, size uint64, err error)    { return 0, 0, gpu.ErrNotFound }
func (fakeModule) Unload() error                                        { return nil }
func (fakeFunction) Occupancy(int, uint64) (int, error)                 { return 8, nil }
func (c *fakeChannel) Launch(*gpu.Launch) (gpu.Fence, error)            { return c.fence() }
func (c *fakeChannel) Copy(gpu.Ptr, gpu.Ptr, uint64) (gpu.Fence, error) { return c.fence() }
func (c *fakeChannel) Copy3D(*gpu.Copy3D) (gpu.Fence, error)            { return c.fence() }
func (c *fakeChannel) Set(gpu.Ptr, uint32, int, uint64) (gpu.Fence, error) {
	return c.fence()
}
func (c *fakeChannel) Set2D(gpu.Ptr, uint64, uint32, int, uint64, uint64) (gpu.Fence, error) {
	return c.fence()
}
func (c *fakeChannel) CopyIn(dst gpu.Ptr, src []byte) (gpu.Fence, error) {
	copy(c.c.at(dst, len(src)), src)
	return c.fence()
}
func (c *fakeChannel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	copy(dst, c.c.at(src, len(dst)))
	return c.fence()
}
func (c *fakeChannel) Done() gpu.Fence                     { return c.last }
func (*fakeChannel) Outcome(gpu.Fence) gpu.Outcome         { return gpu.Outcome{Start: 10, End: 20} }
func (*fakeChannel) Wait(context.Context, gpu.Fence) error { return nil }
func (*fakeChannel) Close() error                          { return nil }
func (c *fakeChannel) fence() (gpu.Fence, error)           { c.last++; return c.last, nil }
func (f fakeFunction) Attributes() (a gpu.FunctionAttributes) {
	a.Name, a.Params, a.ParamBytes = f.name, []gpu.Param{{Size: 8}}, 8
	if f.name == "preemptible" {
		a.Params, a.ParamBytes = append(a.Params, gpu.Param{Offset: 8, Size: abi.PreemptArgsBytes}), 8+abi.PreemptArgsBytes
	}
	return a
}

type (
	fakeModule   struct{}
	fakeFunction struct{ name string }
	fakeChannel  struct {
		c    *fakeContext
		last gpu.Fence
	}
)

func newFakeRig(t testing.TB) *rig {
	t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := fakeGPU{}.NewContext(context.Background(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, ctx: ctx, page: page, shared: make([]byte, sharedBytes), header: abi.HeaderBytes(testChannels), rings: testRings}
	r.x = New(Options{Device: fakeGPU{}, Context: ctx, Shared: r.shared, Windows: r.header + r.rings, Page: page, Clock: clock.Real{}})
	t.Cleanup(func() {
		if err := r.x.Close(); err != nil {
			t.Error(err)
		}
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// launcher returns a function that sends one launch, carries it out and takes its answer.
func (r *rig) launcher(name string, attributes ...abi.Attribute) func() {
	g := r.open()
	l := abi.Launch{Function: g.load("fake", name), Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	data := attributed(make([]byte, 8), attributes...)
	done := make([]abi.Completion, 1)
	h := abi.Header{Op: abi.OpLaunch, Aux: uint16(len(attributes)), More: uint8(abi.MoreFor(len(data)))}
	return func() {
		if !g.sub.Reserve(1 + int(h.More)) {
			r.t.Fatal("no room")
		}
		e := g.sub.Next()
		l.Encode(e)
		h.Encode(e)
		for rest := data; len(rest) > 0; {
			rest = rest[copy(g.sub.Next()[:], rest):]
		}
		g.sub.Publish()
		for n := 0; n == 0; {
			r.x.Step(false)
			var err error
			if n, _, err = g.com.Fetch(done); err != nil || n > 0 && done[0].Status != abi.StatusOK {
				r.t.Fatal(fmt.Sprint(done[0].Status, err))
			}
		}
	}
}

// TestLaunchesAllocateNothing: after the first, neither plain launches nor preemptible ones that
// are not evicted allocate.
func TestLaunchesAllocateNothing(t *testing.T) {
	for _, c := range []struct {
		name       string
		attributes []abi.Attribute
	}{
		{"plain", nil},
		{"preemptible", []abi.Attribute{kernels[0].Attribute()}},
		{"preemptible", []abi.Attribute{kernels[1].Attribute()}},
	} {
		launch := newFakeRig(t).launcher(c.name, c.attributes...)
		launch()
		if n := testing.AllocsPerRun(100, launch); n != 0 {
			t.Errorf("%s: %v allocations a launch", c.name, n)
		}
	}
}

// BenchmarkLaunch measures the executor's cost of plain and preemptible launches.
func BenchmarkLaunch(b *testing.B) {
	for _, c := range []struct {
		name, kernel string
		attributes   []abi.Attribute
		logged       bool // with a work log
		beside       int  // contexts of the guest
	}{
		{"plain", "plain", nil, false, 0},
		{"beside", "plain", nil, false, 15},
		{"logged", "plain", nil, true, 0},
		{"single", "preemptible", []abi.Attribute{kernels[0].Attribute()}, false, 0},
		{"coarse", "preemptible", []abi.Attribute{kernels[1].Attribute()}, false, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newFakeRig(b)
			for i := range c.beside {
				r.page.Context(1 + i).Reset(1)
				r.page.AddChange()
			}
			r.page.SetWorkLogWanted(c.logged)
			launch := r.launcher(c.kernel, c.attributes...)
			launch()
			b.ReportAllocs()
			for b.Loop() {
				launch()
			}
		})
	}
}
