package vm

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// pair returns the two ends of an executor's connection.
func pair(t *testing.T) (ours, theirs *ipc.Conn) {
	t.Helper()
	ours, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = ipc.FromFile(end); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	})
	return ours, theirs
}

// begun reports whether a start was already allowed.
func begun(done <-chan error) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestExecutorsAreStartedAtAPace(t *testing.T) {
	b := testExecutors(t)
	var now clock.Sim
	now.Advance(time.Hour)
	b.clock = &now
	start := func(slot int) <-chan error {
		done := make(chan error, 1)
		go func() { done <- b.awaitStart(t.Context(), slot) }()
		return done
	}
	// One for each slot at once.
	for slot := range ipc.MaxContexts {
		if err := <-start(slot); err != nil {
			t.Fatal(err)
		}
	}
	// Then a slot waits for its own last, and for the guest's others.
	third := start(3)
	now.AwaitWaiters(1)
	now.Advance(startEvery)
	now.AwaitWaiters(1)
	if begun(third) {
		t.Error("a start before the guest's limit allows it")
	}
	now.Advance(allStartsEvery - startEvery)
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	now.Advance(time.Minute)
	if err := <-start(3); err != nil {
		t.Fatal(err)
	}
	fourth := start(3)
	now.AwaitWaiters(1)
	now.Advance(startEvery - 1)
	if begun(fourth) {
		t.Error("two in a slot without a pause")
	}
	now.Advance(1)
	if err := <-fourth; err != nil {
		t.Fatal(err)
	}
}

func TestStopEndsTheWaitForAStart(t *testing.T) {
	b := testExecutors(t)
	var now clock.Sim
	b.clock = &now
	b.command = func() *exec.Cmd { t.Error("started"); return exec.Command("/nonexistent") }
	if err := b.awaitStart(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	b.CreateContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 5, Generation: 1}})
	now.AwaitWaiters(1)
	b.Reset() // returns, though the clock stands
}

func TestFaultTextStaysWithItsContext(t *testing.T) {
	b := testExecutors(t)
	b.fault(4, "illegal address 0x1000")
	b.ResetContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 4, Generation: 2}})
	if got := b.lastFault(4); got != "illegal address 0x1000" {
		t.Errorf("after a reset: %q", got)
	}
	b.CreateContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 4, Generation: 3}})
	if got := b.lastFault(4); got != "" {
		t.Errorf("a new context learns of the last one's %q", got)
	}
}

// TestSlowExecutorIsNotLate checks that an executor that lacks a processor gets more time, as long as it
// lacks one, though not for ever.
func TestSlowExecutorIsNotLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  int // looks at which it has been active
		looks int // after which it is late
	}{{"hangs", 0, 1}, {"is slow and then hangs", 3, 4}, {"is slow for ever", 100, slowLooks}} {
		t.Run(c.name, func(t *testing.T) {
			b := testExecutors(t)
			var now clock.Sim
			b.clock = &now
			looks := 0
			var active time.Duration
			b.active = func(int) time.Duration {
				if looks++; looks <= c.slow {
					active += readyLimit/slowPart + 1
				} else {
					active += readyLimit / slowPart
				}
				return active
			}
			ours, _ := pair(t)
			done := make(chan error, 1)
			go func() {
				_, err := newProcess(b, vgpu.ContextRef{Slot: 1, Generation: 1}).receive(ours)
				done <- err
			}()
			for range c.looks {
				now.AwaitWaiters(1) // it is not late yet
				now.Advance(readyLimit)
			}
			if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || looks != c.looks {
				t.Errorf("%d looks, error %v", looks, err)
			}
		})
	}
}

func TestExecutorThatIsNotReadyInTime(t *testing.T) {
	b := testExecutors(t)
	var now clock.Sim
	b.clock = &now
	p := newProcess(b, vgpu.ContextRef{Slot: 1, Generation: 1})
	ours, _ := pair(t)
	type end struct {
		code abi.ErrorCode
		err  error
	}
	done := make(chan end)
	go func() {
		code, err := p.receive(ours)
		done <- end{code, err}
	}()
	now.AwaitWaiters(1)
	now.Advance(readyLimit)
	if e := <-done; e.code != abi.ErrorExecutorStart || !errors.Is(e.err, os.ErrDeadlineExceeded) {
		t.Errorf("code %v, error %v", e.code, e.err)
	}
}

// TestVectorsAreSent: an executor gets all interrupt vectors that there are as it starts, in one message,
// and once it is ready those that have changed meanwhile: before, it reads no messages.
func TestVectorsAreSent(t *testing.T) {
	b := testExecutors(t)
	there := map[int]bool{1: true, 2: true, 3: true, 31: true}
	b.vector = func(v int) (*os.File, error) {
		if !there[v] {
			return nil, nil
		}
		fd, err := unix.Eventfd(uint(v), unix.EFD_CLOEXEC)
		return os.NewFile(uintptr(fd), "vector"), err
	}
	p := newProcess(b, vgpu.ContextRef{Slot: 1, Generation: 1})
	ours, theirs := pair(t)
	p.conn = ours
	all := b.dev.Config().Vectors
	if err := p.sendAllVectors(all); err != nil {
		t.Fatal(err)
	}
	m, err := theirs.Receive()
	var got ipc.Vectors
	if err = errors.Join(err, m.Decode(&got)); err != nil || m.Kind != ipc.KindVectors || !slices.Equal(got.Indexes, []int{1, 2, 3, 31}) || len(m.Files) != 4 {
		t.Fatalf("got %s %+v with %d files, %v", m.Kind, got, len(m.Files), err)
	}
	for i, f := range m.Files {
		var n [8]byte
		if _, err := f.Read(n[:]); err != nil || int(binary.NativeEndian.Uint64(n[:])) != got.Indexes[i] {
			t.Errorf("vector %d has the eventfd of %v, %v", got.Indexes[i], n, err)
		}
	}
	if err := m.CloseFiles(); err != nil {
		t.Error(err)
	}
	next := func(v int) {
		t.Helper()
		m, err := theirs.Receive()
		var got ipc.Vector
		if err = errors.Join(err, m.Decode(&got)); err != nil || m.Kind != ipc.KindVector || got.Index != v || len(m.Files) > 0 != there[v] {
			t.Fatalf("got %s %+v, %v; want vector %d", m.Kind, got, err, v)
		}
		if err := m.CloseFiles(); err != nil {
			t.Error(err)
		}
	}
	delete(there, 2)
	p.sendVectors(2, 1)
	if err := theirs.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if code, err := p.receive(ours); code != abi.ErrorExecutorLost {
			t.Errorf("code %v, error %v", code, err)
		}
	}()
	for v := range all {
		next(v) // the first: it was not sent before
	}
	// Later changes come one by one.
	p.sendVectors(2, 2)
	next(2)
	next(3)
	if err := ours.Expire(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

// TestSlotIsFreeAfterAStopInTheStart covers an executor that had begun to use the slot.
func TestSlotIsFreeAfterAStopInTheStart(t *testing.T) {
	b := testExecutors(t)
	p := newProcess(b, vgpu.ContextRef{Slot: 6, Generation: 1})
	make := b.command
	b.command = func() *exec.Cmd {
		p.stop()
		b.page.Context(6).Reset(os.Getpid()) // as the process does, at any time after its setup
		return make()
	}
	before := b.page.Changed()
	p.run()
	if s := b.page.Context(6).State(); s != ipc.ContextNone || b.page.Changed() == before {
		t.Errorf("slot is %v, changes from %d to %d", s, before, b.page.Changed())
	}
}
