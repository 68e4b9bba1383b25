package executor

import (
	"math"
	"slices"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// watched is a context that records the commands on its channels.
type watched struct {
	gpu.Context
	channels []*watchedChannel
}

func (c *watched) NewChannel() (gpu.Channel, error) {
	ch, err := c.Context.NewChannel()
	w := &watchedChannel{Channel: ch}
	c.channels = append(c.channels, w)
	return w, err
}

type watchedChannel struct {
	gpu.Channel
	ops []string
}

func (c *watchedChannel) Launch(l *gpu.Launch) (gpu.Fence, error) {
	c.ops = append(c.ops, "launch")
	return c.Channel.Launch(l)
}

func (c *watchedChannel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	c.ops = append(c.ops, "read")
	return c.Channel.CopyOut(dst, src)
}

// TestReadbackIsBehindTheKernel: what a kernel that is told to leave leaves is read behind it on
// its own channel. Nothing is read on another channel, for which the context would need the GPU
// once more.
func TestReadbackIsBehindTheKernel(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Form.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			w := &watched{Context: r.ctx}
			r.x.o.Context = w
			g := r.open()
			fn := g.load(testdata(t, k.file), k.name)
			c := g.counting(600)
			c.preemptible(g, fn, k, 30)
			slot := r.page.Context(0)
			for n := range uint64(3) {
				r.stepUntil("it runs", func() bool { s := r.newest().State; return s == slotstate.Running || s == slotstate.Done })
				r.evictAll(math.MaxUint32)
				r.stepUntil("it leaves", func() bool { return slot.Counters().Evictions == n+1 || r.newest().State == slotstate.Done })
			}
			if cs := g.receive(1); cs[0].Status != abi.StatusOK {
				t.Errorf("launch %+v", cs[0])
			}
			c.check()
			evictions := int(slot.Counters().Evictions)
			if evictions == 0 {
				t.Fatal("it never left")
			}
			// A persistent kernel leaves no record. The units of the last run, which was not told to
			// leave, are read on another channel.
			again, own := "launch read read ", w.channels[0].ops
			if k.Form == abi.PreemptPersistent {
				again = "launch read "
			}
			if got := strings.Join(own, " "); !strings.Contains(got, strings.Repeat(again, evictions)+"launch") {
				t.Errorf("%d evictions, and on the kernel's channel %s", evictions, got)
			}
			for i, ch := range w.channels[1:] {
				if n := len(slices.DeleteFunc(ch.ops, func(op string) bool { return op != "read" })); n > 1 {
					t.Errorf("channel %d of the executor's own read %d times", i, n)
				}
			}
		})
	}
}
