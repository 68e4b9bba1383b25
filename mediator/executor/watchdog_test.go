package executor

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// stuckGPU is a GPU whose clock can't be read until it is let go, like a call of a driver that
// waits for what runs. To enable its context lets it go.
type stuckGPU struct {
	fakeGPU
	hung, in, let chan struct{}
	first, last   sync.Once
}

func newStuckGPU() *stuckGPU {
	return &stuckGPU{hung: make(chan struct{}), in: make(chan struct{}), let: make(chan struct{})}
}

func (d *stuckGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.fakeGPU.NewContext(ctx, o)
	return hangingContext{c, d.hung}, err
}

func (d *stuckGPU) Now() (time.Duration, error) {
	d.first.Do(func() { close(d.in) })
	<-d.let
	return 1, nil
}

func (d *stuckGPU) letGo()                    { d.last.Do(func() { close(d.let) }) }
func (d *stuckGPU) Suspend(gpu.Context) error { return nil }
func (d *stuckGPU) Resume(gpu.Context) error  { d.letGo(); return nil }

// stuck is a process whose Run waits in the driver.
type stuck struct {
	gpu      *stuckGPU
	vm       *ipc.Conn
	clock    *clock.Sim // the executor's
	patience *clock.Sim // the dead man's handle's
	exited   chan int
	ended    <-chan error
}

// serveStuck runs such a process, whose guest the daemon has suspended; disabled reports whether
// its channels are off the GPU.
func serveStuck(t *testing.T, disabled bool) *stuck {
	t.Helper()
	s := &stuck{gpu: newStuckGPU(), clock: &clock.Sim{}, patience: &clock.Sim{}, exited: make(chan int, 1)}
	s.clock.Advance(time.Hour)
	p := process{s.clock, watchdog{s.patience, func(code int) {
		s.exited <- code
		s.gpu.letGo() // as the end of a process does
	}}}
	var page *ipc.ControlPage
	s.vm, page, s.ended = serveIn(t, p, ipc.Setup{Guest: "g", Header: abi.HeaderBytes(testChannels)}, func(context.Context, ipc.GPU) (gpu.Device, error) {
		return s.gpu, nil
	})
	if m, err := s.vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	page.SetDisabled(0, disabled)
	page.Beat(s.clock.Now())
	page.SetSuspendWord(ipc.Suspend)
	<-s.gpu.in
	return s
}

// end waits for the end of the process, which ended itself with code, or -1 if it did not need to.
func (s *stuck) end(t *testing.T, code int) {
	t.Helper()
	if code >= 0 {
		s.patience.AwaitWaiters(1)
		s.patience.Advance(exitLimit)
		if got := <-s.exited; got != code {
			t.Errorf("ends itself with %d, want %d", got, code)
		}
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if len(s.exited) > 0 {
		t.Errorf("ends itself with %d as well", <-s.exited)
	}
}

// TestHangHoldsUpRun: a kernel that only the end of the process stops is ended though the executor
// waits for it in the driver, and vm is told once.
func TestHangHoldsUpRun(t *testing.T) {
	s := serveStuck(t, false)
	close(s.gpu.hung)
	s.end(t, 0)
	m, err := s.vm.Receive()
	if err != nil {
		t.Fatal(err)
	}
	var f ipc.Fault
	if err := m.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if m.Kind != ipc.KindFault || abi.ErrorCode(f.Code) != abi.ErrorTimeLimit {
		t.Errorf("%s with code %v", m.Kind, abi.ErrorCode(f.Code))
	}
	if m, err := s.vm.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("then %+v, %v", m, err)
	}
}

// TestHeldUpWithoutVM: a process that waits in the driver ends though there is no vm to end it.
func TestHeldUpWithoutVM(t *testing.T) {
	s := serveStuck(t, false)
	if err := s.vm.Shut(0); err != nil {
		t.Fatal(err)
	}
	s.end(t, 1)
}

// TestOrphanIsEnabled: if vm and the daemon are gone, a context that was left off the GPU is
// enabled, so that what waits for it goes on.
func TestOrphanIsEnabled(t *testing.T) {
	s := serveStuck(t, true)
	if err := s.vm.Shut(0); err != nil {
		t.Fatal(err)
	}
	s.patience.AwaitWaiters(1) // it knows that vm is gone
	for range ipc.SuspensionLimit/enableInterval + 1 {
		s.clock.AwaitWaiters(1)
		s.clock.Advance(enableInterval)
	}
	s.end(t, -1)
}
