package remote

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/memfd"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// TestEventsOverTheSocket registers an event kernel of another process's GPU, and launches it by
// stores to memory that both share.
func TestEventsOverTheSocket(t *testing.T) {
	path, _ := serve(t, soft.Options{})
	r := newRig(t, dial(t, path), gpu.ContextOptions{})
	fd, err := unix.MemfdCreate("events", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "events")
	defer f.Close()
	if err := f.Truncate(abi.EventAreaBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	area, err := unix.Mmap(fd, 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(area) }()
	ek := r.ctx.(gpu.EventKernels)
	fn, err := r.m.Function("double")
	if err != nil {
		t.Fatal(err)
	}
	k := &gpu.EventKernel{Number: 2, Entries: 4, Launch: gpu.Launch{
		Function: fn, Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: doubleParams(0, 0),
	}}
	if err := ek.RegisterEventKernel(k); !errors.Is(err, gpu.ErrInvalidLaunch) {
		t.Errorf("without an area: %v", err)
	}
	if _, err := ek.MapEvents(f); err != nil {
		t.Fatal(err)
	}
	if err := ek.RegisterEventKernel(k); err != nil {
		t.Fatal(err)
	}
	l, err := eventqueue.Attach(area, 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if l.Launch() {
			ek.KickEvents()
		}
		for _, ok := l.Done(); !ok; _, ok = l.Done() {
			runtime.Gosched()
		}
		l.Complete()
	}
	if err := ek.HoldEvents(true); err != nil {
		t.Fatal(err)
	}
	list, err := ek.EventKernelCounts()
	if err != nil || len(list) != 1 || list[0].Ended != 20 || list[0].Number != 2 || list[0].Resident {
		t.Errorf("counts %+v, %v", list, err)
	}
	if gone, err := ek.UnregisterEventKernel(2); !gone || err != nil {
		t.Errorf("unregister: %v, %v", gone, err)
	}
	if _, err := ek.UnregisterEventKernel(-1); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("unregister what there is not: %v", err)
	}
}
