package executor

import (
	"encoding/binary"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/internal/futex"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// entriesOf is the launch attribute for a number of entries.
func entriesOf(n uint32) abi.Attribute {
	a := abi.Attribute{ID: abi.AttributeEventEntries}
	a.PutUint32(0, n)
	return a
}

// register registers a kernel with 64-bit parameters, and returns its number and the end of its queue
// that launches.
func (g *guestEnd) register(fn uint64, params ...uint64) (int, *eventqueue.Launcher) {
	g.r.t.Helper()
	l, data := launchOf(fn, 32, params...)
	c := g.call(abi.Header{Op: abi.OpEventKernelRegister, Aux: 1}, l, attributed(data, entriesOf(8))...)
	if c.Status != abi.StatusOK {
		g.r.t.Fatal(c.Status)
	}
	n := int(c.Value[0])
	if c.Value[1] == 0 || c.Value[2] != 8 {
		g.r.t.Errorf("registered as %v", c.Value)
	}
	q, err := eventqueue.Attach(g.r.options.Events, n)
	if err != nil {
		g.r.t.Fatal(err)
	}
	return n, q
}

// fire launches an event, and kicks as a process of the host's does.
func (r *rig) fire(q *eventqueue.Launcher) {
	r.t.Helper()
	if _, ok := q.Free(); !ok {
		r.t.Fatal("no free entry")
	}
	if q.Launch() {
		kicks := abi.AtomicWord(r.options.Events, abi.EventKicksWord)
		kicks.Add(1)
		futex.Wake(kicks)
	}
}

// complete waits for an event without stepping the executor, which has no part in it.
func (r *rig) complete(q *eventqueue.Launcher) {
	r.t.Helper()
	proctest.Until(r.t, "the event ends", func() bool { _, ok := q.Done(); return ok })
	q.Complete()
}

// TestEventKernels registers a kernel twice and launches it with the executor standing still, on a GPU
// that contexts can be taken off; the answers are right, counted, and gone after unregistering.
func TestEventKernels(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.x.o.FetchLimit = DeepFetchLimit
	g := r.open()
	fn := g.load(incPTX, "inc")
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 256}).Value[0]
	a, qa := g.register(fn, mem)
	b, qb := g.register(fn, mem+128)
	if a == b || !r.page.EventNumber(a) || !r.page.EventNumber(b) {
		t.Errorf("numbers %d and %d", a, b)
	}
	for range 20 {
		r.fire(qa)
		r.complete(qa)
	}
	r.fire(qb)
	r.complete(qb)
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: mem, Size: 256})
	for i := range 64 {
		want := uint32(20)
		if i >= 32 {
			want = 1
		}
		if got := binary.LittleEndian.Uint32(r.shared[staging+4*i:]); got != want {
			t.Fatalf("word %d is %d, want %d", i, got, want)
		}
	}
	for n, want := range map[int]uint64{a: 20, b: 1} {
		if c := g.must(abi.OpEventKernelQuery, abi.Handle{Handle: uint64(n)}); c.Value != [3]uint64{want, 0, 0} {
			t.Errorf("counts of %d: %v", n, c.Value)
		}
	}
	module := r.x.functions.byID[fn].module
	if c := g.call(abi.Header{Op: abi.OpModuleUnload}, abi.Handle{Handle: module}); c.Status != abi.StatusNotReady {
		t.Errorf("unload of a module with event kernels: %v", c.Status)
	}
	g.must(abi.OpEventKernelUnregister, abi.Handle{Handle: uint64(a)})
	g.must(abi.OpEventKernelUnregister, abi.Handle{Handle: uint64(b)})
	if r.page.EventNumber(a) || qa.State() != abi.EventUnregistered {
		t.Errorf("number %d is %v after unregistering", a, qa.State())
	}
	qa.Ring()
	qa.Ring()
	g.must(abi.OpModuleUnload, abi.Handle{Handle: module})
	fn = g.load(incPTX, "inc")
	n, _ := g.register(fn, mem)
	if c := g.must(abi.OpEventKernelQuery, abi.Handle{Handle: uint64(n)}); n != a || c.Value[2] != 2 {
		t.Errorf("event kernel %d has %d stray rings, want 2 of %d", n, c.Value[2], a)
	}
}

// TestEventKernelRefused: what can't be registered is an error, and takes nothing.
func TestEventKernelRefused(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")
	l, data := launchOf(fn, 32, 0)
	cooperative := abi.Attribute{ID: abi.AttributeCooperative}
	cooperative.PutUint32(0, 1)
	for name, c := range map[string]struct {
		l    func(*abi.Launch)
		a    abi.Attribute
		want abi.Status
	}{
		"no function":        {func(l *abi.Launch) { l.Function = 99 }, entriesOf(4), abi.StatusInvalidHandle},
		"no grid":            {func(l *abi.Launch) { l.Grid[1] = 0 }, entriesOf(4), abi.StatusInvalidValue},
		"a block too large":  {func(l *abi.Launch) { l.Block = [3]uint32{1024, 2, 1} }, entriesOf(4), abi.StatusLaunchResources},
		"shared memory":      {func(l *abi.Launch) { l.SharedBytes = 1 << 30 }, entriesOf(4), abi.StatusLaunchResources},
		"no entries":         {func(*abi.Launch) {}, entriesOf(0), abi.StatusInvalidValue},
		"too many entries":   {func(*abi.Launch) {}, entriesOf(1025), abi.StatusInvalidValue},
		"cooperative":        {func(*abi.Launch) {}, cooperative, abi.StatusNotSupported},
		"preemptible":        {func(*abi.Launch) {}, abi.Preempt{Form: abi.PreemptCoarse, Group: 8, Every: 1}.Attribute(), abi.StatusNotSupported},
		"a cluster":          {func(*abi.Launch) {}, clusterOf(2, 1, 1), abi.StatusInvalidCluster},
		"unknown attributes": {func(*abi.Launch) {}, abi.Attribute{ID: 0xfff}, abi.StatusNotSupported},
	} {
		l := l
		c.l(&l)
		if got := g.call(abi.Header{Op: abi.OpEventKernelRegister, Aux: 1}, l, attributed(data, c.a)...); got.Status != c.want {
			t.Errorf("%s: %v, want %v", name, got.Status, c.want)
		}
	}
	for _, op := range []abi.Opcode{abi.OpEventKernelUnregister, abi.OpEventKernelQuery} {
		for _, n := range []uint64{0, 15, 16, 1 << 40} {
			if got := g.call(abi.Header{Op: op}, abi.Handle{Handle: n}); got.Status != abi.StatusInvalidHandle {
				t.Errorf("%v of %d: %v", op, n, got.Status)
			}
		}
	}
	for range abi.MaxEventKernels {
		g.register(fn, 0)
	}
	if got := g.call(abi.Header{Op: abi.OpEventKernelRegister}, l, data...); got.Status != abi.StatusTooMany {
		t.Errorf("one more: %v", got.Status)
	}
}

// TestEventKernelUnregisterWaits: the command is answered when what was rung for before has ended.
func TestEventKernelUnregisterWaits(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	n, q := g.register(g.load(spinPTX, "spin"), 20000)
	for range 4 {
		r.fire(q)
	}
	g.must(abi.OpEventKernelUnregister, abi.Handle{Handle: uint64(n)})
	for range 4 {
		if _, ok := q.Done(); !ok {
			t.Fatal("answered with an event under way")
		}
		q.Complete()
	}
}

// TestEventsSuspended: a suspended guest's events wait, and count as work that waits.
func TestEventsSuspended(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	_, q := g.register(g.load(incPTX, "inc"), g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0])
	r.x.Step(true)
	r.fire(q)
	ek := r.ctx.(gpu.EventKernels)
	for range 200 {
		ek.KickEvents()
		r.x.Step(true)
		list, err := ek.EventKernelCounts() // the GPU has looked at its doorbells since the last
		if err != nil || list[0].Started != 0 {
			t.Fatalf("an event of a suspended guest began: %+v, %v", list, err)
		}
	}
	if !r.page.Context(0).Backlog() {
		t.Error("an event that waits is no work")
	}
	r.stepUntil("the event's end", func() bool { _, ok := q.Done(); return ok })
}

// TestEventFault: an event's fault poisons the context, though no command is there to notice it, and
// names the kernel.
func TestEventFault(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	_, q := g.register(g.load(incPTX, "inc"), 8)
	r.fire(q)
	r.stepUntil("a fault", func() bool { return len(r.faults) > 0 })
	if f := r.faults[0]; abi.ErrorCode(f.Code) != abi.ErrorGPUFault || !strings.Contains(f.Text, "inc") {
		t.Errorf("fault %+v", f)
	}
	if c := g.call(abi.Header{Op: abi.OpEventKernelQuery}, abi.Handle{}); c.Status != abi.StatusIllegalAddress {
		t.Errorf("a command after it: %v", c.Status)
	}
	if s := q.State(); s != abi.EventFailed {
		t.Errorf("the kernel is %v", s)
	}
}

// TestEventReasonShown: why the GPU does not launch a kernel's events by itself is told on the page.
func TestEventReasonShown(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	n, _ := g.register(g.load(incPTX, "inc"), g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0])
	r.x.showEvents([]gpu.EventKernelCounts{{Number: n, Kernel: "inc", Tier: abi.EventHost, Why: abi.EventReasonPrints}})
	all, _ := r.page.EventKernels()
	if len(all) != 1 || all[0].Tier != abi.EventHost || all[0].Why != abi.EventReasonPrints {
		t.Errorf("the page has %+v", all)
	}
}

// TestEventNumbersFreed: a context's numbers are free once its executor is gone.
func TestEventNumbersFreed(t *testing.T) {
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = page.Close() }()
	for i := range abi.MaxEventKernels {
		if n, ok := page.TakeEventNumber(i % 2); !ok || n != i {
			t.Fatalf("number %d, %v", n, ok)
		}
	}
	if _, ok := page.TakeEventNumber(0); ok {
		t.Error("a seventeenth number")
	}
	page.FreeEventNumbers(1)
	for n := range abi.MaxEventKernels + 1 {
		if page.EventNumber(n) != (n%2 == 0 && n < abi.MaxEventKernels) {
			t.Errorf("number %d is taken: %v", n, page.EventNumber(n))
		}
	}
	page.GiveEventNumber(0, 4)
	if n, ok := page.TakeEventNumber(3); !ok || n != 1 {
		t.Errorf("number %d, %v", n, ok)
	}
	if page.Context(0).EventNumbers()&(1<<4) != 0 || page.Context(3).EventNumbers() != 2 {
		t.Errorf("contexts have %#x and %#x", page.Context(0).EventNumbers(), page.Context(3).EventNumbers())
	}
}

// TestEventKernelsNotSupported: a GPU without the ability says so.
func TestEventKernelsNotSupported(t *testing.T) {
	r := newFakeRig(t)
	g := r.open()
	l, data := launchOf(g.load("fake", "kernel"), 32, 0)
	if got := g.call(abi.Header{Op: abi.OpEventKernelRegister}, l, data...); got.Status != abi.StatusNotSupported {
		t.Errorf("register: %v", got.Status)
	}
	for _, op := range []abi.Opcode{abi.OpEventKernelUnregister, abi.OpEventKernelQuery} {
		if got := g.call(abi.Header{Op: op}, abi.Handle{}); got.Status != abi.StatusNotSupported {
			t.Errorf("%v: %v", op, got.Status)
		}
	}
	for _, kind := range []string{"nvidia", "soft"} {
		if FeaturesOf(kind)&abi.FeatureEventKernels == 0 {
			t.Errorf("the feature is not offered on %s", kind)
		}
	}
}
