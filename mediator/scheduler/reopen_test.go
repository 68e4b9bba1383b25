package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/remote"
)

// TestGPUIsOpenedAgain: a GPU that goes has a problem until it is back, however often opening it
// has to be tried.
func TestGPUIsOpenedAgain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gpu.sock")
	start := func() (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- remote.Run(ctx, remote.ServerOptions{
				Socket: socket, GPU: soft.Options{MemoryBytes: 1 << 20, Priority: -1}, Ready: func() { close(ready) },
			})
		}()
		<-ready
		return func() {
			t.Helper()
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
	}
	now := &clock.Sim{}
	open := func() (*Loop, error) {
		return OpenLoop(t.Context(), Options{Name: "gpu0", Clock: now, Log: slog.New(slog.DiscardHandler), Policy: noPolicy}, LoopOptions{
			Open:     func(ctx context.Context) (gpu.Monitor, error) { return remote.Dial(ctx, socket) },
			Watching: Watching{Registers: accounting.Config{}.WithDefaults()},
		})
	}
	if _, err := open(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("opened where nobody answers: %v", err)
	}
	stop := start()
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	for range 3 {
		stop()
		for range 3 {
			now.AwaitWaiters(1)
			if st := l.Status(); st.Problem == "" {
				t.Fatalf("the GPU is gone, and %+v", st)
			}
			now.Advance(reopenEvery)
		}
		now.AwaitWaiters(1)
		stop = start()
		now.Advance(reopenEvery)
		for l.Status().Problem != "" {
			runtime.Gosched()
		}
		if _, err := l.Device().Now(); err != nil {
			t.Errorf("the GPU is back, and not the one that is watched: %v", err)
		}
	}
	cancel()
	<-ended
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	stop()
}

// TestNothingIsReplacedAtTheEnd: a GPU that was opened again while the loop ended is given back.
func TestNothingIsReplacedAtTheEnd(t *testing.T) {
	d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	l := &Loop{Scheduler: newScene(t).sched}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Stop()
	unused, current := l.replace(ctx, opened{device: d})
	if unused.device != gpu.Monitor(d) || current || !l.over() {
		t.Errorf("unused %+v, current %v, over %v", unused, current, l.over())
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
