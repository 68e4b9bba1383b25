package vm

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// staysVariable has the executor of [moving] stay, diesVariable has one die that makes a context
// anew, slowVariable has one never end with that, and losesVariable has one lose its GPU when it is to
// close a channel.
const (
	staysVariable = "VGPUD_TEST_STAYS"
	diesVariable  = "VGPUD_TEST_DIES"
	slowVariable  = "VGPUD_TEST_SLOW"
	losesVariable = "VGPUD_TEST_LOSES"
)

// moving is an executor that can leave. Its context is a number, which it shows as its channel group:
// how often it was made anew. It counts requests to open a channel as commands, and those to close
// one as errors.
func moving() error {
	conn, err := ipc.FromFile(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	m, err := conn.Receive()
	if err != nil {
		return err
	}
	var s ipc.Setup
	if err := m.Decode(&s); err != nil {
		return err
	}
	page, err := ipc.OpenControlPage(m.Files[1])
	if err != nil {
		return err
	}
	count := []byte{0}
	if s.Saved {
		if os.Getenv(diesVariable) != "" {
			os.Exit(0)
		}
		if _, err := m.Files[len(m.Files)-1].ReadAt(count, 0); err != nil {
			return err
		}
	}
	slot := page.Context(s.Slot)
	slot.Reset(os.Getpid())
	if s.Saved && os.Getenv(slowVariable) != "" {
		_, err := conn.Receive()
		return err
	}
	for range s.Closed {
		slot.AddError()
	}
	slot.SetReady(uint16(count[0]))
	if err := conn.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		return err
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return nil
		}
		if m.Kind == ipc.KindShut && !s.Saved && os.Getenv(losesVariable) != "" {
			return rescue(conn)
		}
		reply := ipc.Message{Kind: m.Kind, ID: m.ID}
		switch m.Kind {
		case ipc.KindOpen:
			slot.AddCommands(1)
		case ipc.KindShut:
			slot.AddError()
		case ipc.KindSave:
			if os.Getenv(staysVariable) != "" {
				reply.Error = "it has an array"
				break
			}
			count[0]++
			if _, err := m.Files[0].WriteAt(count, 0); err != nil {
				return err
			}
			saved, err := ipc.NewMessage(m.Kind, ipc.Saved{})
			if err != nil {
				return err
			}
			saved.ID = m.ID
			reply = saved
		}
		if m.ID != 0 {
			if err := conn.Send(reply); err != nil {
				return err
			}
		}
	}
}

// rescue sends a context whose GPU is lost, and answers nothing more.
func rescue(conn *ipc.Conn) error {
	fd, err := unix.MemfdCreate("rescued", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "rescued")
	if _, err := f.WriteAt([]byte{1}, 0); err != nil {
		return err
	}
	m, err := ipc.NewMessage(ipc.KindSave, ipc.Saved{}, f)
	if err == nil {
		err = conn.Send(m)
	}
	for err == nil {
		_, err = conn.Receive()
	}
	return nil
}

// movingGuest is a guest with a context that floats and is on GPU 0, whose executor is [moving].
type movingGuest struct {
	*executors
	t     *testing.T
	serve *ipc.Conn
	dial  func() *ipc.Conn
	ref   vgpu.ContextRef
}

func newMovingGuest(t *testing.T, env ...string) *movingGuest {
	t.Helper()
	b, dial := floatingExecutors(t)
	b.command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), roleVariable+"=move"), env...)
		return cmd
	}
	g := &movingGuest{b, t, dial(), dial, vgpu.ContextRef{Slot: 2, Generation: 4}}
	b.daemons.leave = b.leave
	var hello ipc.Hello
	next(t, g.serve, ipc.KindHello, &hello)
	b.CreateContext(vgpu.Context{ContextRef: g.ref, Floats: true, Task: abi.TaskRequest{Memory: 100}})
	var asked ipc.Task
	next(t, g.serve, ipc.KindTask, &asked)
	g.place(0, 0)
	g.until("the context is ready", func() bool { return g.ready(0) })
	return g
}

// place places the context after it has left so many times.
func (g *movingGuest) place(gpu int, left uint32) {
	g.t.Helper()
	answer(g.t, g.serve, ipc.Place{Slot: g.ref.Slot, Generation: g.ref.Generation, GPU: gpu, Granted: 100, Left: left})
}

func (g *movingGuest) ready(gpu int) bool {
	p := g.process(g.ref.Slot)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready && p.moves.at == onGPU && g.pages[gpu].Context(g.ref.Slot).State() == ipc.ContextReady
}

func (g *movingGuest) until(what string, done func() bool) {
	g.t.Helper()
	proctest.Until(g.t, what, done)
}

// leave asks the context to leave.
func (g *movingGuest) askToLeave() {
	g.t.Helper()
	m, err := ipc.NewMessage(ipc.KindLeave, ipc.Leave{Slot: g.ref.Slot, Generation: g.ref.Generation})
	if err == nil {
		err = g.serve.Send(m)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// left waits until the context has left, or stays.
func (g *movingGuest) left() (l ipc.Left) {
	g.t.Helper()
	next(g.t, g.serve, ipc.KindLeft, &l)
	return l
}

func (g *movingGuest) open(channel int) {
	g.contextOf[channel].Store(int32(g.ref.Slot))
	g.OpenChannel(vgpu.Channel{ChannelRef: vgpu.ChannelRef{Slot: channel}, Context: g.ref})
}

// A context leaves its GPU, and goes on where it is placed next: the guest's requests meanwhile are
// carried out there, and answers about the time before it left count no more.
func TestContextMoves(t *testing.T) {
	g := newMovingGuest(t)
	g.open(7)
	g.open(8)
	g.askToLeave()
	l := g.left()
	if want := (ipc.Left{Slot: 2, Generation: 4, Times: 1, Bytes: l.Bytes, Memory: 100}); l != want || l.Bytes == 0 {
		t.Fatalf("it has left: %s", cmp.Diff(want, l))
	}
	if s := g.pages[0].Context(2); s.State() != ipc.ContextNone || s.PID() != 0 {
		t.Errorf("a context that has left is %v, with process %d", s.State(), s.PID())
	}
	later := g.dial()
	var hello ipc.Hello
	if next(t, later, ipc.KindHello, &hello); !cmp.Equal(hello.Away, []ipc.Left{l}) || len(hello.Tasks) != 1 {
		t.Errorf("a later daemon is told of %+v", hello)
	}
	g.place(0, 0) // of before
	g.CloseChannel(vgpu.ChannelRef{Slot: 8})
	var wants ipc.Leave
	g.open(9)
	if next(t, g.serve, ipc.KindWants, &wants); wants != (ipc.Leave{Slot: 2, Generation: 4}) {
		t.Errorf("%+v wants a GPU", wants)
	}
	g.place(1, 1)
	g.until("it is ready again", func() bool { return g.ready(1) })
	if g.ready(0) {
		t.Error("it is where it was placed before")
	}
	slot := g.pages[1].Context(2)
	g.until("its channel is open", func() bool { return slot.Counters().Commands == 1 })
	if id, _ := slot.Group(); id != 1 {
		t.Errorf("it was made anew %d times, want 1", id)
	}
	if n := slot.Counters().Errors; n != 1 {
		t.Errorf("it knows of %d channels that were closed, want 1", n)
	}
	hello = ipc.Hello{}
	if next(t, g.dial(), ipc.KindHello, &hello); len(hello.Away) != 0 {
		t.Errorf("it is told to be away: %+v", hello.Away)
	}
	// It may leave again.
	g.askToLeave()
	if l := g.left(); l.Times != 2 {
		t.Errorf("it has left %d times", l.Times)
	}
	g.place(0, 2)
	g.until("it is ready again", func() bool { return g.ready(0) })
	if id, _ := g.pages[0].Context(2).Group(); id != 2 {
		t.Errorf("it was made anew %d times, want 2", id)
	}
}

// A context that can't leave stays, says why, and serves what was asked meanwhile.
func TestContextStays(t *testing.T) {
	g := newMovingGuest(t, staysVariable+"=1")
	for range 2 {
		g.askToLeave()
		g.open(7)
		if l := g.left(); l.Error != "it has an array" || l.Times != 0 {
			t.Fatalf("%+v", l)
		}
	}
	slot := g.pages[0].Context(2)
	g.until("its channel is open", func() bool { return slot.Counters().Commands == 2 })
	if m, err := ipc.NewMessage(ipc.KindLeave, ipc.Leave{Slot: 2, Generation: 3}); err != nil || g.serve.Send(m) != nil {
		t.Fatal(err)
	}
	if l := g.left(); l.Generation != 3 || l.Error == "" {
		t.Errorf("a context that is gone: %+v", l)
	}
}

// A doorbell of a context that has left makes it want a GPU, once.
func TestDoorbellWantsGPU(t *testing.T) {
	g := newMovingGuest(t)
	g.open(7)
	g.askToLeave()
	if l := g.left(); l.Wants {
		t.Error("it wants a GPU without commands")
	}
	g.Kick(vgpu.ChannelRef{Slot: 7})
	g.Kick(vgpu.ChannelRef{Slot: 7})
	var wants ipc.Leave
	next(t, g.serve, ipc.KindWants, &wants)
	g.DestroyContext(g.ref)
	for {
		m, err := receive(g.serve)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == ipc.KindWants {
			t.Error("it wants a GPU twice")
		}
		if m.Kind == ipc.KindTaskGone {
			break
		}
	}
	<-g.process(2).done
}

// Executors that die while they make a context anew are replaced, but not for ever.
func TestContextOutlivesDeadExecutors(t *testing.T) {
	g := newMovingGuest(t, diesVariable+"=1")
	g.askToLeave()
	l := g.left()
	for i := range uint32(maxTries - 1) {
		g.place(1, l.Times)
		if l = g.left(); l.Times != i+2 || !l.Wants || l.Error != "" {
			t.Fatalf("after %d executors that died: %+v", i+1, l)
		}
	}
	g.place(1, l.Times)
	var gone ipc.Task
	next(t, g.serve, ipc.KindTaskGone, &gone)
}

// An executor may die before it has its setup, too.
func TestContextOutlivesAnExecutorWithoutSetup(t *testing.T) {
	g := newMovingGuest(t)
	command := g.command
	g.askToLeave()
	l := g.left()
	p := g.process(g.ref.Slot)
	p.mu.Lock() // which is taken before an executor is started
	g.command = func() *exec.Cmd {
		g.command = command
		// The link is closed before standard input. One command for both would leave that to the shell:
		// dash 0.5.12 keeps copies of both meanwhile, and closes those of lower descriptors first.
		cmd := exec.Command("/bin/sh", "-c", "exec 3<&-; exec 0<&-")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Error(err)
			return cmd
		}
		p.mu.Lock() // setting it up needs it, too
		go func() {
			defer p.mu.Unlock()
			var err error
			for err == nil {
				_, err = stdin.Write(make([]byte, 4096)) // it waits where the pipe is full
			}
			if !errors.Is(err, unix.EPIPE) {
				t.Error(err)
			}
		}()
		return cmd
	}
	p.mu.Unlock()
	g.place(1, l.Times)
	if l = g.left(); l.Times != 2 || !l.Wants || l.Error != "" {
		t.Fatalf("after an executor that died: %+v", l)
	}
	g.place(1, l.Times)
	g.until("the context is ready on the other GPU", func() bool { return g.ready(1) })
}

// A context that has left and gets no GPU any more ends, whatever the daemon knows of the time before:
// one that began since may refuse it at once.
func TestContextThatLeftIsRefused(t *testing.T) {
	g := newMovingGuest(t)
	g.askToLeave()
	g.left()
	answer(t, g.serve, ipc.Place{Slot: g.ref.Slot, Generation: g.ref.Generation, Code: uint32(abi.ErrorNoRoom)})
	var gone ipc.Task
	next(t, g.serve, ipc.KindTaskGone, &gone)
}

// A request that an executor did not answer before its GPU was lost is not lost with it: a channel that
// was to be closed is not opened again with the context, and one that was to be opened is.
func TestRequestsOutliveTheGPU(t *testing.T) {
	g := newMovingGuest(t, losesVariable+"=1")
	g.open(6)
	g.open(7)
	slot := g.pages[0].Context(2)
	g.until("its channels are open", func() bool { return slot.Counters().Commands == 2 })
	g.CloseChannel(vgpu.ChannelRef{Slot: 7})
	g.open(8)
	if l := g.left(); l.Times != 1 || l.Error != "" {
		t.Fatalf("%+v", l)
	}
	g.place(1, 1)
	g.until("it is ready again", func() bool { return g.ready(1) })
	slot = g.pages[1].Context(2)
	g.until("its new channel is open", func() bool { return slot.Counters().Commands == 1 })
	if n := slot.Counters().Errors; n != 1 {
		t.Errorf("it knows of %d channels that were closed, want 1", n)
	}
}

// While a context is made anew on a GPU it has that GPU's memory, so a later daemon is not told that it
// is away. It would be placed once more, and its memory given to others.
func TestReturningContextIsNotAway(t *testing.T) {
	g := newMovingGuest(t, slowVariable+"=1")
	g.askToLeave()
	g.left()
	g.place(1, 1)
	g.until("it is made anew", func() bool { return g.pages[1].Context(g.ref.Slot).PID() != 0 })
	var hello ipc.Hello
	if next(t, g.dial(), ipc.KindHello, &hello); len(hello.Away) != 0 || len(hello.Tasks) != 1 {
		t.Errorf("a later daemon is told of %+v", hello)
	}
}
