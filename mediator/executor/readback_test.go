package executor

import (
	"sync/atomic"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// slowReads is a context whose copies to the host are not done before letGo is set.
type slowReads struct {
	gpu.Context
	letGo atomic.Bool
}

func (c *slowReads) NewChannel() (gpu.Channel, error) {
	ch, err := c.Context.NewChannel()
	if err != nil {
		return nil, err
	}
	return &readingChannel{Channel: ch, of: c}, nil
}

type readingChannel struct {
	gpu.Channel
	of    *slowReads
	first gpu.Fence // of the copies that are not let go
}

func (c *readingChannel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	f, err := c.Channel.CopyOut(dst, src)
	if c.first == 0 {
		c.first = f
	}
	return f, err
}

func (c *readingChannel) Done() gpu.Fence {
	done := c.Channel.Done()
	if c.first != 0 && !c.of.letGo.Load() {
		done = min(done, c.first-1)
	}
	return done
}

// TestStoppedBeforeReadback: a kernel has left the GPU at the end of its last block, however long
// it then takes to read what it left undone.
func TestStoppedBeforeReadback(t *testing.T) {
	slow := new(slowReads)
	r := newRigIn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1}, gpu.ContextOptions{}, func(c gpu.Context) gpu.Context {
		slow.Context = c
		return slow
	})
	g := r.open()
	k := kernels[2]
	fn := g.load(testdata(t, k.file), k.name)
	slow.letGo.Store(true)
	c := g.counting(800)
	r.page.SetMode(ipc.ModeByKernel)
	c.preemptible(g, fn, k, 3000)
	r.stepUntil("it runs", func() bool { r.runAll(); return r.newest().State == slotstate.Running })
	slow.letGo.Store(false)
	r.evictAll(abi.EvictAll)
	j := r.x.channels[0].job
	r.stepUntil("it has left", func() bool { return j.run.stopped != 0 })
	read := r.x.o.Clock.Now() + 20*time.Millisecond
	r.stepUntil("time goes by", func() bool { return r.x.o.Clock.Now() >= read })
	slow.letGo.Store(true)
	r.stepUntil("what it left is read", func() bool { return r.newest().Evictions == 1 })
	if v := r.newest(); v.Stopped >= read {
		t.Errorf("it left %v after the reading began", v.Stopped-read)
	}
	if n := r.x.slot.Counters(); n.Evictions != 1 {
		t.Errorf("%d evictions", n.Evictions)
	}
	r.page.SetMode(ipc.ModeFree)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Errorf("completion %+v", com)
	}
	c.check()
}

// TestWindowIsReadWithoutCopies: what a persistent kernel left is loaded from the window, without a
// copy.
func TestWindowIsReadWithoutCopies(t *testing.T) {
	r, w := newWindowedRig(t, 4)
	g := r.open()
	k := kernels[2]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(64)
	c.preemptible(g, fn, k, 3)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Fatalf("completion %+v", com)
	}
	if w.loads == 0 {
		t.Error("nothing was loaded from the window")
	}
	if done := r.x.words.gpu.Done(); done != 0 {
		t.Errorf("%d copies of control blocks", done)
	}
	c.check()
}
