package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/remote"
	"vgpud/mediator/ipc"
)

// TestGPUIsOpenedAgain: a GPU that goes is unwell until it is back, however often
// it has to be tried.
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
	s := &Service{clock: now, log: slog.New(slog.DiscardHandler), guests: make(map[string]*guest)}
	s.o.Open = func(ctx context.Context, g ipc.GPU) (gpu.Monitor, error) { return remote.Dial(ctx, g.Socket) }
	config := GPUConfig{Name: "gpu0", Kind: "soft", Socket: socket, Policy: "none"}
	if _, err := s.open(t.Context(), config); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("opened where nobody answers: %v", err)
	}
	stop := start()
	sh, err := s.open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s.shares = append(s.shares, sh)
	ctx, cancel := context.WithCancel(t.Context())
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		s.attend(ctx, sh)
	}()
	for range 3 {
		stop()
		for range 3 {
			now.AwaitWaiters(1)
			if g := sh.gpu(0); g.Healthy || g.Problem == "" {
				t.Fatalf("the GPU is gone, and %+v", g)
			}
			now.Advance(reopenEvery)
		}
		now.AwaitWaiters(1)
		stop = start()
		now.Advance(reopenEvery)
		for !sh.gpu(0).Healthy {
			runtime.Gosched()
		}
		if _, err := sh.open().device.Now(); err != nil {
			t.Errorf("the GPU is back, and not the one that is watched: %v", err)
		}
	}
	cancel()
	<-attended
	if err := s.closeGPUs(); err != nil {
		t.Error(err)
	}
	stop()
}

// TestNothingIsRenewedAtTheEnd: what was opened while the daemon left is given
// back.
func TestNothingIsRenewedAtTheEnd(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.share.leave()
	d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	unused, current := s.share.renew(ctx, opened{device: d})
	if unused.device != gpu.Monitor(d) || current || !s.share.over {
		t.Errorf("unused %+v, current %v, over %v", unused, current, s.share.over)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
