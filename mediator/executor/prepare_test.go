package executor

import (
	"context"
	"log/slog"
	"testing"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestPreparedGPU: a spare executor opens its GPU once, before its setup comes, and opens another
// where that has gone or is not the setup's.
func TestPreparedGPU(t *testing.T) {
	prepared := ipc.GPU{Name: "gpu0", Kind: "soft"}
	for _, c := range []struct {
		name  string
		setup ipc.GPU
		gone  bool // before the setup
		opens int
	}{
		{"the same", prepared, false, 1},
		{"gone since", prepared, true, 2},
		{"another", ipc.GPU{Name: "gpu1", Kind: "soft"}, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened := make(chan gpu.Device, 2)
			open := func(context.Context, ipc.GPU) (gpu.Device, error) {
				d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
				opened <- d
				return d, err
			}
			p := process{clock.Real{}, watchdog{&clock.Sim{}, func(code int) { t.Errorf("the process ends itself with %d", code) }}}
			before := func(vm *ipc.Conn) {
				m, err := ipc.NewMessage(ipc.KindPrepare, ipc.Prepare{GPU: prepared})
				if err == nil {
					err = vm.Send(m)
				}
				if err != nil {
					t.Fatal(err)
				}
				d := <-opened
				if c.gone {
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			vm, _, _ := serveAfter(t, p, before, ipc.Setup{Guest: "g", GPU: c.setup, Header: abi.HeaderBytes(testChannels)}, open)
			if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" {
				t.Fatalf("%+v, %v", m, err)
			}
			if n := 1 + len(opened); n != c.opens {
				t.Errorf("opened %d times, want %d", n, c.opens)
			}
		})
	}
}

// TestSpareThatIsNotNeeded: a spare executor ends in order with its connection, and closes its GPU.
func TestSpareThatIsNotNeeded(t *testing.T) {
	vm, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ipc.FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	var device *closing
	opened := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), theirs, func(context.Context, ipc.GPU) (gpu.Device, error) {
			defer close(opened)
			d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
			device = &closing{Device: d}
			return device, err
		}, slog.New(slog.DiscardHandler))
	}()
	m, err := ipc.NewMessage(ipc.KindPrepare, ipc.Prepare{GPU: ipc.GPU{Name: "gpu0"}})
	if err == nil {
		err = vm.Send(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-opened
	if err := vm.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || device.closed != 1 {
		t.Errorf("ended with %v, and closed its GPU %d times", err, device.closed)
	}
}

// closing counts how often a GPU is closed.
type closing struct {
	gpu.Device
	closed int
}

func (c *closing) Close() error {
	c.closed++
	return c.Device.Close()
}
