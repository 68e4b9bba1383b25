package vm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// floatingExecutors returns the backend of a guest that floats over two GPUs, and serves its control
// socket.
func floatingExecutors(t *testing.T) (b *executors, dial func() *ipc.Conn) {
	t.Helper()
	b = testExecutors(t)
	other, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Reset()
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	b.spec.Floats = []ipc.GPU{{Name: "a"}, {Name: "b"}}
	b.spec.GPU = b.spec.Floats[0]
	b.pages = append(b.pages, other)
	c, l := newControl(t)
	c.place, c.lend, c.alone = b.place, b.lend, b.waitForDaemon
	b.daemons = c
	path := l.Addr().String()
	serveControl(t, c, l)
	t.Cleanup(b.wait)
	t.Cleanup(b.Reset) // comes first
	return b, func() *ipc.Conn {
		t.Helper()
		conn, err := ipc.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // some tests close it before
		return conn
	}
}

// next returns the next message of a kind.
func next(t *testing.T, conn *ipc.Conn, kind ipc.Kind, v any) {
	t.Helper()
	for {
		m, err := receive(conn)
		if err != nil {
			t.Fatalf("wait for %s: %v", kind, err)
		}
		if err := m.CloseFiles(); err != nil {
			t.Error(err)
		}
		if m.Kind != kind {
			continue
		}
		if err := m.Decode(v); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// answer sends a decision.
func answer(t *testing.T, conn *ipc.Conn, pl ipc.Place) {
	t.Helper()
	m, err := ipc.NewMessage(ipc.KindPlace, pl)
	if err == nil {
		err = conn.Send(m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestContextsWaitForTheirGPU follows a context that floats: it asks, has no executor before it has a
// GPU, gets one on that GPU, which knows its grant, and gives the grant back.
func TestContextsWaitForTheirGPU(t *testing.T) {
	b, dial := floatingExecutors(t)
	ref := vgpu.ContextRef{Slot: 3, Generation: 5}
	c := vgpu.Context{ContextRef: ref, Floats: true, Tag: 9, Task: abi.TaskRequest{Memory: 100, Blocks: 7, Threads: 64}}
	want := ipc.Task{Slot: 3, Generation: 5, Tag: 9, Memory: 100, Blocks: 7, Threads: 64}

	serve := dial()
	var hello ipc.Hello
	next(t, serve, ipc.KindHello, &hello)
	b.CreateContext(c)
	var got ipc.Task
	if next(t, serve, ipc.KindTask, &got); got != want {
		t.Fatalf("asked for %s", cmp.Diff(want, got))
	}
	// A daemon that comes later knows of it from the first message.
	later := dial()
	if next(t, later, ipc.KindHello, &hello); !cmp.Equal(hello.Tasks, []ipc.Task{want}) {
		t.Errorf("a later daemon is told of %+v", hello.Tasks)
	}
	// Neither answer is about this context.
	answer(t, serve, ipc.Place{Slot: 3, Generation: 4, GPU: 1, Granted: 1})
	answer(t, serve, ipc.Place{Slot: 99, Generation: 5, GPU: 1, Granted: 1})
	answer(t, serve, ipc.Place{Slot: 3, Generation: 5, Reason: uint32(abi.WaitMemory)})
	p := b.process(3)
	if s := b.pages[0].Context(3).State(); s != ipc.ContextNone {
		t.Errorf("a context that waits has an executor: %v", s)
	}
	answer(t, serve, ipc.Place{Slot: 3, Generation: 5, GPU: 1, Number: 6, Granted: 100})
	slot := b.pages[1].Context(3)
	await(t, "an executor where the context was placed", func() bool { return slot.State() == ipc.ContextReady })
	if s := b.pages[0].Context(3).State(); s != ipc.ContextNone {
		t.Errorf("an executor where the context was not placed: %v", s)
	}
	b.DestroyContext(ref)
	if next(t, serve, ipc.KindTaskGone, &got); got != want || slot.State() != ipc.ContextNone {
		t.Errorf("%+v gave its grant back with its slot %v", got, slot.State())
	}
	<-p.done
	if s := p.setup(); s.GPU.Name != "b" || s.Grant != 100 {
		t.Errorf("the executor is told of GPU %s and %d bytes", s.GPU.Name, s.Grant)
	}
}

// TestContextsThatGetNoGPU destroys one that waits, and refuses another.
func TestContextsThatGetNoGPU(t *testing.T) {
	b, dial := floatingExecutors(t)
	serve := dial()
	var hello ipc.Hello
	next(t, serve, ipc.KindHello, &hello)
	waits, refused := vgpu.ContextRef{Slot: 0, Generation: 1}, vgpu.ContextRef{Slot: 1, Generation: 1}
	for _, ref := range []vgpu.ContextRef{waits, refused} {
		b.CreateContext(vgpu.Context{ContextRef: ref, Floats: true, Task: abi.TaskRequest{Memory: 1}})
		var got ipc.Task
		next(t, serve, ipc.KindTask, &got)
	}
	var gone ipc.Task
	b.DestroyContext(waits)
	if next(t, serve, ipc.KindTaskGone, &gone); gone.Slot != 0 {
		t.Errorf("%+v is gone", gone)
	}
	answer(t, serve, ipc.Place{Slot: 1, Generation: 1, Code: uint32(abi.ErrorNoRoom)})
	if next(t, serve, ipc.KindTaskGone, &gone); gone.Slot != 1 {
		t.Errorf("%+v is gone", gone)
	}
}

// TestNewestDecision: of several decisions before a context's goroutine looks, the newest counts,
// but a GPU that was granted is not taken back by a reason to wait.
func TestNewestDecision(t *testing.T) {
	b := testExecutors(t)
	p := newProcess(b, vgpu.ContextRef{})
	p.tell(ipc.Place{Reason: 1})
	p.tell(ipc.Place{Reason: 2})
	if got := <-p.placed; got.Reason != 2 {
		t.Errorf("an old reason: %+v", got)
	}
	p.tell(ipc.Place{Granted: 7})
	p.tell(ipc.Place{Reason: 2})
	if got := <-p.placed; got.Granted != 7 {
		t.Errorf("the grant was lost: %+v", got)
	}
}

// TestNobodyDecidesComesLate: contexts are not told that nobody decides once another daemon has connected,
// whose reason that would replace for good.
func TestNobodyDecidesComesLate(t *testing.T) {
	b, dial := floatingExecutors(t)
	p := newProcess(b, vgpu.ContextRef{})
	p.task = &ipc.Task{}
	set := func(p *process) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.processes[0] = p
	}
	set(p)
	defer set(nil)
	b.waitForDaemon()
	if got := <-p.placed; abi.WaitReason(got.Reason) != abi.WaitDaemon {
		t.Errorf("without a daemon: %+v", got)
	}
	serve := dial()
	var hello ipc.Hello
	next(t, serve, ipc.KindHello, &hello)
	p.tell(ipc.Place{Reason: uint32(abi.WaitMemory)})
	b.waitForDaemon() // since the daemon before has gone
	if got := <-p.placed; abi.WaitReason(got.Reason) != abi.WaitMemory {
		t.Errorf("beside a new daemon: %+v", got)
	}
}
