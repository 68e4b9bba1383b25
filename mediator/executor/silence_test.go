package executor

import (
	"context"
	"runtime"
	"testing"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestSuspensionEndsWithTheDaemon: an executor whose daemon died while the guest was suspended
// resumes by itself, also while it sleeps.
func TestSuspensionEndsWithTheDaemon(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	var sim clock.Sim
	r.x.o.Clock = &sim
	g := r.open()
	r.page.Beat(0)
	r.page.SetSuspendWord(ipc.Suspend)
	g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.x.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	completed := func() int {
		n, _, err := g.com.Fetch(make([]abi.Completion, 1))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	wakeups := func() uint64 { return r.page.Context(0).Counters().Wakeups }

	// It polls for a while, and sleeps.
	for wakeups() == 0 && sim.Now() < ipc.SuspensionLimit/2 {
		sim.Advance(PollWindow / 4)
		runtime.Gosched()
	}
	for !r.page.Context(0).Backlog() { // until it has looked
		runtime.Gosched()
	}
	if completed() != 0 {
		t.Fatal("a command of a held guest was carried out")
	}
	// It sleeps. When it wakes, for whatever reason, it is not suspended.
	sim.Advance(ipc.SuspensionLimit)
	r.page.Context(0).Wake()
	for completed() == 0 {
		runtime.Gosched()
	}
}
