package vm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// observedClock tells of each wait on it, and for how long that is.
type observedClock struct {
	clock.Sim
	waits chan time.Duration
}

func (c *observedClock) WaitUntil(ctx context.Context, t time.Duration) error {
	c.waits <- t - c.Now()
	return c.Sim.WaitUntil(ctx, t)
}

// warmExecutors returns the backend of a guest that keeps a spare executor, and its clock.
func warmExecutors(t *testing.T) (*executors, *observedClock) {
	b := testExecutors(t)
	now := &observedClock{waits: make(chan time.Duration, 64)}
	now.Advance(time.Hour)
	b.clock = now
	b.spec.GPU.WarmExecutors = true
	return b, now
}

// awaitSpare waits until the guest has a new spare executor, and returns its PID. The wait for its
// start comes first, and then that for its end.
func awaitSpare(t *testing.T, b *executors, now *observedClock) (pid int) {
	t.Helper()
	proctest.Until(t, "a spare executor", func() bool {
		select {
		case d := <-now.waits:
			switch d {
			case spareDelay:
				now.AwaitWaiters(1)
				now.Advance(spareDelay)
			case spareLife:
				pid = spareOf(b)
				return true
			}
		default:
		}
		return false
	})
	return pid
}

// spareOf returns the PID of the guest's spare executor, or 0 if it has none.
func spareOf(b *executors) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spare == nil || b.spare.s == nil {
		return 0
	}
	return b.spare.s.cmd.Process.Pid
}

// awaitEnd waits until a process that this one has started has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return // it is gone already
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	await(t, fmt.Sprintf("process %d ends", pid), func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		return n == 1
	})
}

// TestSpareExecutor: the next context is the spare executor's, unless that has died.
func TestSpareExecutor(t *testing.T) {
	b, now := warmExecutors(t)
	create(t, b, vgpu.ContextRef{Slot: 0, Generation: 1}, 0)
	spare := awaitSpare(t, b, now)
	if pid := create(t, b, vgpu.ContextRef{Slot: 1, Generation: 1}, 0); pid != spare {
		t.Errorf("the context is process %d's, not the spare executor's, %d", pid, spare)
	}
	dead := awaitSpare(t, b, now)
	if err := unix.Kill(dead, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, dead, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if pid := create(t, b, vgpu.ContextRef{Slot: 2, Generation: 1}, 0); pid == dead {
		t.Error("the context is a dead process's")
	}
	if awaitSpare(t, b, now) == dead {
		t.Error("the dead process is still the spare executor")
	}
	awaitEnd(t, dead)
}

// receiveOnly has a process receive one message of its executor's.
func receiveOnly(t *testing.T, b *executors, m ipc.Message) {
	t.Helper()
	ours, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ipc.FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(theirs.Send(m), theirs.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := newProcess(b, vgpu.ContextRef{Slot: 9, Generation: 1}).receive(ours); err == nil {
		t.Error("no error at the connection's end")
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
}

// TestSpareExecutorEnds: it ends when nobody needs it for long, when a context says that the GPU is
// gone, and before the GPU is drained, for which nobody may have it open. It outlives the device's
// reset, which is what a guest's driver does at its end. A context that is placed on another GPU
// ends it, too.
func TestSpareExecutorEnds(t *testing.T) {
	b, now := warmExecutors(t)
	lost := fmt.Appendf(nil, `{"code": %d}`, abi.ErrorDeviceLost)
	for i, end := range []func(){
		func() { now.AwaitWaiters(1); now.Advance(spareLife) },
		func() { b.drain(ipc.Drain{Refuse: true}) },
		func() { receiveOnly(t, b, ipc.Message{Kind: ipc.KindFault, Body: lost}) },
		func() { receiveOnly(t, b, ipc.Message{Kind: ipc.KindReady, Error: "no GPU", Body: lost}) },
		func() {
			if b.takeSpare(t.Context(), 1) != nil {
				t.Error("a context on another GPU got the spare executor")
			}
		},
	} {
		b.drain(ipc.Drain{})
		now.Advance(time.Minute) // so that an executor may be started
		create(t, b, vgpu.ContextRef{Slot: i, Generation: 1}, 0)
		spare := awaitSpare(t, b, now)
		b.Reset()
		if spareOf(b) != spare {
			t.Error("the spare executor ended with the device's reset")
		}
		end()
		awaitEnd(t, spare)
	}
}

// TestNoSpareExecutor: a guest of a GPU that is opened quickly has none.
func TestNoSpareExecutor(t *testing.T) {
	b, _ := warmExecutors(t)
	b.spec.GPU.WarmExecutors = false
	b.keepSpare(0, 0)
	if b.spare != nil {
		t.Error("a spare executor that was not asked for")
	}
}

// TestNoSpareExecutorOfADrainedGPU: a context that is ready after its GPU's drain has begun, on one of
// the GPUs of a guest that floats, leaves no process that has the GPU open.
func TestNoSpareExecutorOfADrainedGPU(t *testing.T) {
	b, _ := warmExecutors(t)
	b.spec.GPU.Name = "gpu0"
	b.spec.Floats = []ipc.GPU{{Name: "gpu0", WarmExecutors: true}, {Name: "gpu1", WarmExecutors: true}}
	b.drain(ipc.Drain{GPU: "gpu1", Refuse: true})
	if b.keepSpare(1, 0); b.spare != nil {
		t.Error("a spare executor of a GPU that is drained")
	}
	if b.isDraining(0) || !b.isDraining(1) {
		t.Error("the GPU that is drained is not the one on which no executor starts")
	}
	if b.keepSpare(0, 0); b.spare == nil {
		t.Error("no spare executor of another GPU")
	}
}
