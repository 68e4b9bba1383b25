package executor

import (
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// spin submits n launches of so many turns.
func (g *guestEnd) spin(fn uint64, n int, turns uint64) {
	g.r.t.Helper()
	l, params := launchOf(fn, 1, turns)
	for range n {
		g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
}

// A guest that closes a channel with launches on the GPU is charged for them, and no other channel
// waits for them for ever.
func TestClosedChannelIsAccountedToItsEnd(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	fn := a.load(spinPTX, "spin")
	ev := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	a.spin(fn, 1, 1) // it is known to be brief
	a.receive(1)
	a.spin(fn, 2, 30_000)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: ev})
	r.x.Step(false)
	slot := r.page.Context(0)
	if slot.Outstanding() != 2 {
		t.Fatalf("%d launches on the GPU, want 2", slot.Outstanding())
	}
	r.x.Shut(0, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	b.send(abi.Header{Op: abi.OpEventWait}, abi.Handle{Handle: ev})
	b.spin(fn, 1, 10)
	for i, c := range b.receive(2) {
		if c.Status != abi.StatusOK {
			t.Errorf("command %d after the event of a closed channel: %v", i, c.Status)
		}
	}
	if c := slot.Counters(); slot.Outstanding() != 0 || c.Kernels != 4 || r.x.launches != 0 || r.x.admittedWork != 0 {
		t.Errorf("%d outstanding, %d kernels, %d launches of %v counted; want 0, 4, 0, 0", slot.Outstanding(), c.Kernels, r.x.launches, r.x.admittedWork)
	}
	if n, err := a.com.Pending(); n != 0 || err != nil {
		t.Errorf("%d completions were written to a closed channel (%v)", n, err)
	}
	r.stepUntil("the channel is let go", func() bool { return len(r.x.draining) == 0 })
}

// A channel that broke the rules of its rings does not keep the context's other channels from the
// GPU.
func TestDeadChannelLetsGoOfItsLaunches(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	fn := a.load(spinPTX, "spin")
	a.spin(fn, 2, 30_000)
	r.x.Step(false)
	page := r.shared[abi.ChannelPage(0) : abi.ChannelPage(0)+abi.PageSize]
	abi.StoreWord(page, abi.SubmissionPutWord, 1<<20)
	b.spin(fn, 3, 10)
	b.receive(3)
	// The other channel's launches may be beside those.
	r.stepUntil("all launches have left", func() bool { return len(r.failures) > 0 && r.page.Context(0).Outstanding() == 0 })
	if len(r.failures) != 1 {
		t.Errorf("failures %v", r.failures)
	}
}

// A guest that reads no completions does not count as busy for ever, and is asked for room even if
// a launch waits for it.
func TestUnreadCompletions(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(spinPTX, "spin")
	for range ringEntries {
		g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
	}
	r.stepUntil("the completion ring is full", func() bool { n, err := g.com.Pending(); return err == nil && n == ringEntries })
	g.spin(fn, 2, 10)
	slot := r.page.Context(0)
	r.stepUntil("the launches have ended", func() bool { return slot.Counters().Kernels == 2 })
	if slot.Outstanding() != 0 || r.x.launches != 0 {
		t.Errorf("%d outstanding, %d counted", slot.Outstanding(), r.x.launches)
	}
	if !r.x.arm(false) {
		t.Fatal("there is work, though nothing has room")
	}
	buf := make([]abi.Completion, ringEntries)
	n, kick, err := g.com.Fetch(buf)
	if n != ringEntries || err != nil || !kick {
		t.Errorf("guest took %d completions (%v), and was asked to say so: %v", n, err, kick)
	}
	if cs := g.receive(2); cs[0].Op != abi.OpLaunch || cs[0].Status != abi.StatusOK {
		t.Errorf("first of the launches: %+v", cs[0])
	}
}

// A guest's hint of how short its kernels are lets it put no more on the GPU.
func TestHintsDoNotFillTheGPU(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(spinPTX, "spin")
	l, params := launchOf(fn, 1, 2_000)
	hint := abi.Attribute{ID: abi.AttributeExpectedNanoseconds}
	hint.PutUint32(0, 1)
	var record abi.Entry
	hint.Encode(&record)
	for range 8 {
		g.send(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, append(record[:], params...)...)
	}
	r.x.Step(false)
	if n := r.page.Context(0).Outstanding(); n > shallowLaunches {
		t.Errorf("%d launches of unknown length on the GPU, at most %d", n, shallowLaunches)
	}
	g.receive(8)
}

// A copy behind a faulted kernel is answered with the fault's status, when it can no longer write.
func TestCopyBehindAFault(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	bad, params := launchOf(fn, 1, 0xdead0000)
	g.send(abi.Header{Op: abi.OpLaunch}, bad, params...)
	g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: 128})
	for i, c := range g.receive(2) {
		if c.Status != abi.StatusIllegalAddress {
			t.Errorf("command %d: %v", i, c.Status)
		}
	}
}
