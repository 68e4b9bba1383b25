package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/memfd"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// serve runs an executor's process, and returns vm's end of its connection and the error with which
// it ended.
func serve(t *testing.T, s ipc.Setup, open Opener) (vm *ipc.Conn, ended <-chan error) {
	t.Helper()
	exit := func(code int) { t.Errorf("the process ends itself with %d", code) }
	vm, _, ended = serveIn(t, process{clock.Real{}, watchdog{&clock.Sim{}, exit}}, s, open)
	return vm, ended
}

// serveIn is serve with another process and the guest's control page.
func serveIn(t *testing.T, p process, s ipc.Setup, open Opener) (vm *ipc.Conn, page *ipc.ControlPage, ended <-chan error) {
	t.Helper()
	return serveAfter(t, p, func(*ipc.Conn) {}, s, open)
}

// serveAfter is serveIn; before is called before the setup is sent, with more files.
func serveAfter(t *testing.T, p process, before func(vm *ipc.Conn), s ipc.Setup, open Opener, more ...*os.File) (vm *ipc.Conn, page *ipc.ControlPage, ended <-chan error) {
	t.Helper()
	vm, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ipc.FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("bar2", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	shared := os.NewFile(uintptr(fd), "bar2")
	if page, err = ipc.NewControlPage(); err != nil {
		t.Fatal(err)
	}
	if err := shared.Truncate(sharedBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(shared.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	m, err := ipc.NewMessage(ipc.KindSetup, s, append([]*os.File{shared, page.File()}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	usual, err := niceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.serve(t.Context(), theirs, open, slog.New(slog.DiscardHandler)) }()
	before(vm)
	if err := errors.Join(vm.Send(m), shared.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The process is the test's.
		if err := errors.Join(vm.Close(), page.Close(), schedule(usual, 0)); err != nil {
			t.Error(err)
		}
	})
	return vm, page, done
}

// TestNoContext: an executor that can't create its context reports why, with a code for vm.
func TestNoContext(t *testing.T) {
	small := func(context.Context, ipc.GPU) (gpu.Device, error) {
		return soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
	}
	broken := func(err error) Opener {
		return func(context.Context, ipc.GPU) (gpu.Device, error) { return nil, err }
	}
	for _, c := range []struct {
		name  string
		open  Opener
		limit uint64
		want  abi.ErrorCode
		text  string // empty: any
	}{
		{"GPU gone", broken(fmt.Errorf("connect: %w: %w", gpu.ErrLost, unix.ECONNREFUSED)), 0, abi.ErrorDeviceLost, "the GPU is gone"},
		{"GPU full", broken(fmt.Errorf("connect to /run/gpu: beside 64 of user 7: %w", gpu.ErrFull)), 0, abi.ErrorLimit, "GPU is full"},
		{"limit too low for a context", small, soft.ContextBytes - 1, abi.ErrorLimit, ""},
		{"no such kind of GPU", broken(errors.New("kind")), 0, abi.ErrorExecutorStart, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			vm, ended := serve(t, ipc.Setup{Guest: "g", Slot: 1, Header: abi.HeaderBytes(testChannels), MemoryLimit: c.limit}, c.open)
			m, err := vm.Receive()
			if err != nil {
				t.Fatal(err)
			}
			var f ipc.Fault
			if err := m.Decode(&f); err != nil {
				t.Fatal(err)
			}
			if m.Kind != ipc.KindReady || m.Error == "" || abi.ErrorCode(f.Code) != c.want {
				t.Errorf("%s %q with code %v, want %v", m.Kind, m.Error, abi.ErrorCode(f.Code), c.want)
			}
			if c.text != "" && f.Text != c.text {
				t.Errorf("the guest reads %q, want %q", f.Text, c.text)
			}
			if err := <-ended; err != nil {
				t.Errorf("it was told, and the process fails as well: %v", err)
			}
		})
	}
}

// endlessGPU has contexts whose copies never end. copies gets one message for each context that copies.
type endlessGPU struct {
	gpu.Device
	copies chan struct{}
}

func (d endlessGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	if err != nil {
		return nil, err
	}
	return endlessContext{c, c.(gpu.Movable), d.copies}, nil
}

type endlessContext struct {
	gpu.Context
	gpu.Movable
	copies chan struct{}
}

func (c endlessContext) NewChannel() (gpu.Channel, error) {
	ch, err := c.Context.NewChannel()
	return endlessChannel{ch, c.copies}, err
}

type endlessChannel struct {
	gpu.Channel
	copies chan struct{}
}

func (c endlessChannel) Wait(ctx context.Context, _ gpu.Fence) error {
	select {
	case c.copies <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestGuestEndsWhileContextReturns: an executor that copies a context's memory to a GPU ends, and gives
// that memory back, when vm has died meanwhile. The daemon is about to grant it to others.
func TestGuestEndsWhileContextReturns(t *testing.T) {
	r := newMovingRig(t)
	g := r.open()
	g.put(g.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 20}).Value[0], []byte("something"))
	saved, err := r.save()
	if err != nil {
		t.Fatal(err)
	}
	copies := make(chan struct{}, 1)
	s := ipc.Setup{Guest: "g", Header: abi.HeaderBytes(testChannels), Grant: 16 << 20, Grows: true, Saved: true}
	dead := make(chan struct{})
	vm, _, ended := serveAfter(t, process{clock.Real{}, watchdog{&clock.Sim{}, func(int) {}}}, func(*ipc.Conn) {}, s,
		func(context.Context, ipc.GPU) (gpu.Device, error) {
			dev, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
			return endlessGPU{dev, copies}, err
		}, saved)
	if err := saved.Close(); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(dead)
		<-copies
		if err := vm.Shut(time.Second); err != nil {
			t.Error(err)
		}
	}()
	<-dead
	proctest.Receive(t, "the executor of a guest that is gone ends", ended) // its answer may find no reader
}

// TestLoweredLimitAndMoves: a guest's limit that was lowered takes nothing from a context that is made
// anew. It gets nothing more.
func TestLoweredLimitAndMoves(t *testing.T) {
	r := newMovingRig(t)
	r.open().must(abi.OpMemAlloc, abi.Alloc{Size: 8 << 20})
	saved, err := r.save()
	if err != nil {
		t.Fatal(err)
	}
	s := ipc.Setup{Guest: "g", Header: abi.HeaderBytes(testChannels), MemoryLimit: 4 << 20, Grant: 16 << 20, Grows: true, Saved: true}
	exit := func(code int) { t.Errorf("the process ends itself with %d", code) }
	vm, page, ended := serveAfter(t, process{clock.Real{}, watchdog{&clock.Sim{}, exit}}, func(*ipc.Conn) {}, s,
		func(context.Context, ipc.GPU) (gpu.Device, error) {
			return soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
		}, saved)
	if err := saved.Close(); err != nil {
		t.Error(err)
	}
	m, err := vm.Receive()
	if err != nil || m.Kind != ipc.KindReady || m.Error != "" {
		t.Fatalf("%s %q, %v", m.Kind, m.Error, err)
	}
	if n := page.Context(0).MemoryTaken(); n < 8<<20 || page.Memory(1, s.MemoryLimit).Take(1) {
		t.Errorf("it has %d bytes, and more is to be had", n)
	}
	if err := vm.Shut(time.Second); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestGPUGoesWhileNothingRuns: a sleeping executor reports the loss of the GPU to vm.
func TestGPUGoesWhileNothingRuns(t *testing.T) {
	opened := make(chan gpu.Device, 1)
	vm, ended := serve(t, ipc.Setup{Guest: "g", Header: abi.HeaderBytes(testChannels)}, func(context.Context, ipc.GPU) (gpu.Device, error) {
		d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
		opened <- d
		return d, err
	})
	if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := (<-opened).Close(); err != nil {
		t.Fatal(err)
	}
	m, err := vm.Receive()
	if err != nil {
		t.Fatal(err)
	}
	var f ipc.Fault
	if err := m.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if m.Kind != ipc.KindFault || abi.ErrorCode(f.Code) != abi.ErrorDeviceLost {
		t.Errorf("%s with code %v", m.Kind, abi.ErrorCode(f.Code))
	}
	if err := vm.Shut(0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
