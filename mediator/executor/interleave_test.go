package executor

import (
	"slices"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// orderContext is a context that records to where its channels copy, in the order in which the
// copies are queued. They are done once the test says so.
type orderContext struct {
	*fakeContext
	order *[]gpu.Ptr
	done  *bool
}

type orderChannel struct {
	*fakeChannel
	of orderContext
}

func (c orderContext) NewChannel() (gpu.Channel, error) {
	return &orderChannel{&fakeChannel{c: c.fakeContext}, c}, nil
}

func (c *orderChannel) CopyIn(dst gpu.Ptr, src []byte) (gpu.Fence, error) {
	*c.of.order = append(*c.of.order, dst)
	return c.fakeChannel.CopyIn(dst, src)
}

func (c *orderChannel) Done() gpu.Fence {
	if !*c.of.done {
		return 0
	}
	return c.fakeChannel.Done()
}

// TestChannelsTakeTurnsAtCopies: while several channels have work none queues many copies before
// the others' next ones, which would wait on the GPU for the kernels that are between them.
func TestChannelsTakeTurnsAtCopies(t *testing.T) {
	r := newFakeRig(t)
	var order []gpu.Ptr
	done := true
	r.x.o.Context = orderContext{r.ctx.(*fakeContext), &order, &done}
	guests := []*guestEnd{r.open(), r.open()}
	var mem [2]uint64
	for i, g := range guests {
		mem[i] = g.must(abi.OpMemAlloc, abi.Alloc{Size: 256}).Value[0]
	}
	copyIn := func(i int) {
		guests[i].send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem[i], Src: staging, Size: 64})
	}
	done = false
	for i := range guests {
		copyIn(i)
	}
	r.x.Step(false)
	order = nil
	for i := range guests {
		for range 3 {
			copyIn(i)
		}
	}
	for r.x.Step(false) {
	}
	a, b := gpu.Ptr(mem[0]), gpu.Ptr(mem[1])
	if want := []gpu.Ptr{a, b, a, b, a, b}; !slices.Equal(order, want) {
		t.Errorf("queued %#x, want %#x", order, want)
	}
	done = true
	for _, g := range guests {
		g.receive(4)
	}
	// Alone, a channel need not stop.
	order = nil
	for range 3 {
		copyIn(1)
	}
	r.x.Step(false)
	if len(order) != 3 {
		t.Errorf("%d of 3 copies of the only channel with work are queued in a step", len(order))
	}
}
