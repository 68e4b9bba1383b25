package vfiouser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"vgpud/vfio/qemu"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A real QEMU attaches and its firmware places the BARs. After it has exited, the next one finds
// the device in its initial state.
func TestRealQEMUAttaches(t *testing.T) {
	deps, err := qemu.Find("")
	if err != nil {
		t.Fatal(err)
	}
	vfiousertest.CheckLeaks(t)
	dev := newPCIDevice(t)
	placed := make(chan uint64, 1)
	write := dev.OnWrite
	dev.OnWrite = func(region uint32, offset uint64, p []byte) error {
		err := write(region, offset, p)
		if addr, ok := dev.config.BARAddress(2); ok && addr != 0 {
			select {
			case placed <- addr:
			default:
			}
		}
		return err
	}
	srv := &vfiouser.Server{Device: dev}
	path, stop := serveAt(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for range 2 {
		vm, err := qemu.Start(ctx, qemu.Options{Deps: deps, Devices: []qemu.Device{{ID: "vgpu0", Socket: path}}})
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		select {
		case addr := <-placed:
			var info string
			if err := vm.Execute(ctx, "human-monitor-command", map[string]string{"command-line": "info pci"}, &info); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("BAR2: 64 bit prefetchable memory at %#x", addr); !strings.Contains(info, want) {
				t.Errorf("info pci lacks %q:\n%s", want, info)
			}
		case <-ctx.Done():
			t.Fatal("the firmware has not placed the BARs")
		}
		if _, err := vfiouser.Dial(ctx, path); err == nil {
			t.Error("a second client is accepted beside QEMU")
		}
		// QEMU may exit before it has answered.
		_ = vm.Execute(ctx, "quit", nil, nil)
		if err := vm.Wait(ctx); err != nil {
			t.Error(err)
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-placed: // this QEMU placed the BARs a second time
		default:
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if s := srv.Stats(); s.Clients != 2 || s.Errors != 0 || s.Broken != 0 {
		t.Errorf("counts %+v", s)
	}
}
