package vm

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
)

// lendingExecutors returns the backend of a guest with spare executors, its clock, and a daemon's
// connection to it.
func lendingExecutors(t *testing.T) (*executors, *observedClock, *ipc.Conn, func() *ipc.Conn) {
	t.Helper()
	b, dial := floatingExecutors(t)
	now := &observedClock{waits: make(chan time.Duration, 256)}
	now.Advance(time.Hour)
	b.clock = now
	for i := range b.spec.Floats {
		b.spec.Floats[i].WarmExecutors = true
	}
	b.spec.GPU = b.spec.Floats[0]
	conn := dial()
	var hello ipc.Hello
	next(t, conn, ipc.KindHello, &hello)
	return b, now, conn, dial
}

// askedFor creates a context, and returns the memory that the guest's process asks for then.
func askedFor(t *testing.T, b *executors, now *observedClock, conn *ipc.Conn, slot int) ipc.Spare {
	t.Helper()
	create(t, b, vgpu.ContextRef{Slot: slot, Generation: 1}, 0)
	go passDelay(now)
	var s ipc.Spare
	next(t, conn, ipc.KindSpare, &s)
	return s
}

// passDelay lets the delay of the next spare executor's start pass.
func passDelay(now *observedClock) {
	for d := range now.waits {
		if d == spareDelay {
			now.AwaitWaiters(1)
			now.Advance(spareDelay)
			return
		}
	}
}

// tellLend sends the daemon's word.
func tellLend(t *testing.T, conn *ipc.Conn, l ipc.Lend) {
	t.Helper()
	m, err := ipc.NewMessage(ipc.KindLend, l)
	if err == nil {
		err = conn.Send(m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// settled waits until the guest's spare executor can be used, and returns its PID, 0 if it has none.
func settled(t *testing.T, b *executors) int {
	t.Helper()
	b.mu.Lock()
	sp := b.spare
	b.mu.Unlock()
	if sp == nil {
		return 0
	}
	await(t, "the spare executor is settled", func() bool {
		select {
		case <-sp.settled:
			return true
		default:
			return false
		}
	})
	return spareOf(b)
}

// TestLentMemory: a spare executor makes a context once the daemon lends it memory, which is the guest's
// when one of its contexts uses the executor.
func TestLentMemory(t *testing.T) {
	b, now, conn, dial := lendingExecutors(t)
	s := askedFor(t, b, now, conn, 0)
	tellLend(t, conn, ipc.Lend{Number: s.Number, Lent: true})
	spare := settled(t, b)
	if diff := cmp.Diff(ipc.Spare{Number: 1, PID: spare}, s); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	// A daemon that comes later learns of it.
	var hello ipc.Hello
	next(t, dial(), ipc.KindHello, &hello)
	if diff := cmp.Diff([]ipc.Spare{s}, hello.Spares); diff != "" {
		t.Errorf("introduced (-want +got):\n%s", diff)
	}
	if pid := create(t, b, vgpu.ContextRef{Slot: 1, Generation: 1}, 0); pid != spare {
		t.Errorf("the context is process %d's, not the spare executor's, %d", pid, spare)
	}
	var gone ipc.Spare
	if next(t, conn, ipc.KindSpareGone, &gone); gone != s {
		t.Errorf("%+v is gone, want %+v", gone, s)
	}
}

// TestResetEndsContextAhead: a reset of the device ends a spare executor that has BAR2, and returns when
// its process has ended. Another one is started, also after one that is still asking for memory.
func TestResetEndsContextAhead(t *testing.T) {
	for name, lent := range map[string]bool{"made": true, "asking": false} {
		t.Run(name, func(t *testing.T) {
			b, now, conn, _ := lendingExecutors(t)
			s := askedFor(t, b, now, conn, 0)
			if lent {
				tellLend(t, conn, ipc.Lend{Number: s.Number, Lent: true})
				settled(t, b)
			}
			b.Reset()
			if err := unix.Kill(s.PID, 0); !errors.Is(err, unix.ESRCH) {
				t.Fatalf("its process is there after a reset: %v", err)
			}
			if lent {
				var gone ipc.Spare
				if next(t, conn, ipc.KindSpareGone, &gone); gone != s {
					t.Errorf("%+v is gone, want %+v", gone, s)
				}
			}
			passDelay(now)
			var again ipc.Spare
			if next(t, conn, ipc.KindSpare, &again); again.Number <= s.Number || again.PID == s.PID {
				t.Errorf("after %+v comes %+v", s, again)
			}
		})
	}
}

// TestMemoryIsNotLent: without memory the spare executor has the GPU open all the same.
func TestMemoryIsNotLent(t *testing.T) {
	b, now, conn, _ := lendingExecutors(t)
	s := askedFor(t, b, now, conn, 0)
	tellLend(t, conn, ipc.Lend{Number: s.Number})
	if spare := settled(t, b); spare == 0 || spare != create(t, b, vgpu.ContextRef{Slot: 1, Generation: 1}, 0) {
		t.Errorf("the context is not the spare executor's, %d", spare)
	}
}

// TestMemoryIsTakenBack: a spare executor whose memory is needed ends, whether or not it has its context
// yet, and the daemon learns when its process has ended.
func TestMemoryIsTakenBack(t *testing.T) {
	for _, early := range []bool{false, true} {
		b, now, conn, _ := lendingExecutors(t)
		s := askedFor(t, b, now, conn, 0)
		tellLend(t, conn, ipc.Lend{Number: s.Number, Lent: true})
		spare := 0
		if !early {
			spare = settled(t, b)
		}
		tellLend(t, conn, ipc.Lend{Number: s.Number})
		var gone ipc.Spare
		if next(t, conn, ipc.KindSpareGone, &gone); gone != s {
			t.Errorf("%+v is gone, want %+v", gone, s)
		}
		if spareOf(b) != 0 || spare != 0 && exists(spare) {
			t.Error("the spare executor is there when its memory is said to be free")
		}
		b.Reset()
	}
}

// TestLateLoan: memory that is lent when nobody waits for it any more is given back at once.
func TestLateLoan(t *testing.T) {
	b, now, conn, _ := lendingExecutors(t)
	s := askedFor(t, b, now, conn, 0)
	tellLend(t, conn, ipc.Lend{Number: s.Number})
	settled(t, b)
	for _, late := range []uint64{s.Number, s.Number + 7} {
		tellLend(t, conn, ipc.Lend{Number: late, Lent: true})
		var gone ipc.Spare
		if next(t, conn, ipc.KindSpareGone, &gone); gone.Number != late {
			t.Errorf("%d is gone, want %d", gone.Number, late)
		}
	}
}

// TestSpareDiesWithSetup: a spare executor that is killed with a context's setup in its hands costs the
// context nothing: another executor is started.
func TestSpareDiesWithSetup(t *testing.T) {
	b, now := warmExecutors(t)
	create(t, b, vgpu.ContextRef{Slot: 0, Generation: 1}, 0)
	spare := awaitSpare(t, b, now)
	proctest.Stop(t, spare)
	b.CreateContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 1, Generation: 1}})
	p := b.process(1)
	await(t, "the spare executor has the setup", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.conn != nil
	})
	if err := unix.Kill(spare, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	slot := b.page.Context(1)
	await(t, "another executor has the context", func() bool { return slot.State() == ipc.ContextReady && slot.PID() != spare })
}

// await waits until ok returns true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	proctest.Until(t, what, ok)
}
