package executor

import (
	"context"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// hangingDevice is a device whose kernels only the end of the process stops.
type hangingDevice struct {
	gpu.Device
	hung chan struct{}
}

type hangingContext struct {
	gpu.Context
	hung <-chan struct{}
}

func (d hangingDevice) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	return hangingContext{c, d.hung}, err
}

func (c hangingContext) Hung() <-chan struct{} { return c.hung }

// TestHangingKernel: vm is told of the time limit, and then the process ends, and the kernel with
// it.
func TestHangingKernel(t *testing.T) {
	hung := make(chan struct{})
	vm, ended := serve(t, ipc.Setup{Guest: "g", Header: abi.HeaderBytes(testChannels)}, func(context.Context, ipc.GPU) (gpu.Device, error) {
		d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
		return hangingDevice{d, hung}, err
	})
	if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	close(hung)
	m, err := vm.Receive()
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
