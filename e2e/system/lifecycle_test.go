package system

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/e2e/mischief"
	"vgpud/e2e/proc"
	"vgpud/gpu"
	"vgpud/gpu/soft/remote"
	"vgpud/guestagent/driver"
	"vgpud/mediator/executor"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vm"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// TestSessionsLeaveNothing attaches guests to a virtual GPU and ends them, by resets and by
// disconnecting, each with an endless kernel on the GPU. The virtual GPU's process and the GPU's
// are this test, so that everything they hold can be counted, down to goroutines; executors are
// processes of their own.
func TestSessionsLeaveNothing(t *testing.T) {
	s := newSessions(t)
	s.useOnce() // what is created on first use stays
	for _, c := range []struct {
		name string
		end  func(f *mischief.Foothold) error
		gone bool
	}{
		{"connection closed", func(f *mischief.Foothold) error { return f.Client.Close() }, true},
		{"device reset", func(f *mischief.Foothold) error { return f.Client.Reset() }, false},
		{"function reset", functionReset, false},
		{"register reset", func(f *mischief.Foothold) error { return f.Bus.Write(abi.RegReset, abi.ResetMagic) }, false},
		{"bus reset, as a VMM's guest is started anew", func(f *mischief.Foothold) error {
			if err := f.Client.WriteUint32(vfiouser.RegionConfig, pci.Command, 0); err != nil {
				return err
			}
			return f.Client.Reset()
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.measure()
			f, err := mischief.Attach(t.Context(), s.socket)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.GPU.Alloc(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
			if _, err := mischief.LaunchEndless(t.Context(), f.GPU); err != nil {
				t.Fatal(err)
			}
			if err := c.end(f); err != nil {
				t.Fatal(err)
			}
			if !c.gone {
				// The reset's work is complete when it is answered.
				if n, err := proc.Children(os.Getpid()); len(n) > 0 || err != nil {
					t.Errorf("after the reset: executors %v (%v)", n, err)
				}
				for _, reg := range []int{abi.ContextSlot(0, abi.ContextStatus), abi.ChannelSlot(0, abi.ChannelStatus), abi.RegSelectVersion} {
					if v, err := f.Bus.Read(uint32(reg)); v != 0 || err != nil {
						t.Errorf("after the reset: register %#x is %#x (%v)", reg, v, err)
					}
				}
				if p := f.Bus.Shared(); strings.Trim(string(p[len(p)/2:]), "\x00") != "" {
					t.Error("after the reset: shared memory holds what was written before")
				}
			}
			_ = f.GPU.Device().Close() // its context no longer exists
			s.useOnce()
			s.settle(before)
		})
	}
	t.Run("guest killed", func(t *testing.T) {
		before := s.measure()
		c := newAttacker(t, "endless kernel", s.socket)
		c.kill()
		s.useOnce()
		s.settle(before)
	})
}

// functionReset resets the function through its configuration space, as a guest's kernel does.
func functionReset(f *mischief.Foothold) error {
	var config [pci.SpaceBytes]byte
	if err := f.Client.RegionRead(vfiouser.RegionConfig, 0, config[:]); err != nil {
		return err
	}
	at := config[pci.CapabilityList]
	for at != 0 && config[at] != pci.CapExpress {
		at = config[at+1]
	}
	if at == 0 {
		return fmt.Errorf("the function has no PCI Express capability: % x", config)
	}
	const control, initiate = 8, 0x80 // Device Control's upper byte
	return f.Client.RegionWrite(vfiouser.RegionConfig, uint64(at)+control+1, []byte{initiate})
}

// sessions is a virtual GPU in this process, on a soft GPU in this process.
type sessions struct {
	t        *testing.T
	socket   string
	observer gpu.Context
}

func newSessions(t *testing.T) *sessions {
	t.Helper()
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "vgpud-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &sessions{t: t, socket: filepath.Join(dir, "vmm.sock")}
	physical := filepath.Join(dir, "gpu.sock")
	log := slog.New(slog.DiscardHandler)
	s.serve("soft GPU", func(ctx context.Context, ready func()) error {
		return remote.Run(ctx, remote.ServerOptions{Socket: physical, Log: log, Ready: ready})
	})
	s.serve("virtual GPU", func(ctx context.Context, ready func()) error {
		sockets, err := vm.Listen(s.socket, nil, dir)
		if err != nil {
			return err
		}
		return vm.Run(ctx, vm.Options{
			Spec:    ipc.Spec{Name: "guest", Socket: s.socket, GPU: ipc.GPU{Name: "gpu0", Kind: "soft", Socket: physical}, BAR2Bytes: 64 << 20},
			Sockets: sockets, Log: log, Version: "test", PollWindow: executor.PollWindow, Features: executor.Features,
			Command: func() *exec.Cmd { return exec.Command(filepath.Join(bin, "vgpud"), "exec") },
			Ready: func() error {
				ready()
				return nil
			},
		})
	})
	dev, err := remote.Dial(t.Context(), physical)
	if err != nil {
		t.Fatal(err)
	}
	if s.observer, err = dev.NewContext(t.Context(), gpu.ContextOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve runs a server until the test ends, and returns when it is ready.
func (s *sessions) serve(what string, run func(ctx context.Context, ready func()) error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		s.t.Fatalf("%s: %v", what, err)
	}
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	})
}

// useOnce attaches a guest, computes something, and detaches it.
func (s *sessions) useOnce() {
	s.t.Helper()
	bus, err := driver.DialVFIOUser(s.t.Context(), s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	dev, err := driver.Open(s.t.Context(), bus)
	if err != nil {
		s.t.Fatal(err)
	}
	works(s.t, contextOf(s.t, dev))
	if err := dev.Close(); err != nil {
		s.t.Error(err)
	}
}

// holdings is what this process and its executors hold.
type holdings struct {
	Goroutines, Descriptors, Executors int
	Mappings                           int    // of memory shared between processes
	Free                               uint64 // bytes of GPU memory
}

func (s *sessions) measure() holdings {
	s.t.Helper()
	var h holdings
	var err error
	if h.Free, _, err = s.observer.Memory(); err != nil {
		s.t.Fatal(err)
	}
	executors, err := proc.Children(os.Getpid())
	if err != nil {
		s.t.Fatal(err)
	}
	h.Executors = len(executors)
	if h.Descriptors, err = proc.Descriptors(os.Getpid()); err != nil {
		s.t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		s.t.Fatal(err)
	}
	h.Mappings = strings.Count(string(maps), "/memfd:")
	h.Goroutines = runtime.NumGoroutine()
	return h
}

// settle waits until nothing more is held than before.
func (s *sessions) settle(before holdings) {
	s.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		now := s.measure()
		if now.Goroutines <= before.Goroutines && now.Descriptors <= before.Descriptors && now.Executors <= before.Executors &&
			now.Mappings <= before.Mappings && now.Free >= before.Free {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			stacks := make([]byte, 1<<20)
			s.t.Fatalf("before: %+v, now: %+v\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
