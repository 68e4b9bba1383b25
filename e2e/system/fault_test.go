package system

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestFault has a kernel write where nothing is: its context ends, with the
// place in the error, and is as new after a reset.
func TestFault(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	bad, good := contextOf(t, dev), contextOf(t, dev)

	const nowhere = driver.Ptr(0xdead_0000_1230)
	p, err := bad.Own().Launch(ctx, function(t, bad, misdeeds, "poke"), driver.Dim{X: 2}, driver.Dim{X: 32}, 0, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Wait(ctx)
	wants(t, "the kernel", err, abi.StatusIllegalAddress)
	for _, part := range []string{"poke", "block (", "thread (", fmt.Sprintf("line %d", pokeLine), fmt.Sprintf("%#x", uint64(nowhere))} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	_, err = bad.Alloc(ctx, 64)
	wants(t, "a call of the context", err, abi.StatusIllegalAddress)

	works(t, good)
	by.goesOn()
	if err := bad.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, bad)
	works(t, good)
	if v := h.VM("guest"); v.Errors == 0 {
		t.Error("the API tells of no error")
	}
}

// TestTimeLimit has a kernel without end, in a guest whose kernels have one.
func TestTimeLimit(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest", KernelTimeLimit: 200 * time.Millisecond})
	gpu, other := contextOf(t, dev), contextOf(t, dev)
	p, err := gpu.Own().Launch(ctx, function(t, gpu, misdeeds, "endless"), one, one, 0)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "the kernel", p.Wait(ctx), abi.StatusTimeLimit)
	works(t, other)
	by.goesOn()
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}

// TestExecutorKilled ends the process of one of a guest's two contexts.
func TestExecutorKilled(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	gpu := contextOf(t, dev)
	executors, err := host.Children(h.VM("guest").PID)
	if err != nil || len(executors) != 1 {
		t.Fatalf("executors of a guest with one context: %v, %v", executors, err)
	}
	other := contextOf(t, dev)
	p, err := gpu.Own().Launch(ctx, function(t, gpu, misdeeds, "endless"), one, one, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(executors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wants(t, "the kernel under way", p.Wait(ctx), abi.StatusContextLost)
	_, err = gpu.Alloc(ctx, 64)
	wants(t, "a call after", err, abi.StatusContextLost)
	works(t, other)
	by.goesOn()
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}

// TestMemoryLimit holds a context of a guest to the limit.
func TestMemoryLimit(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	const limit = 8 << 20
	gpu := newContext(t, h, api.VMSpec{Name: "guest", MemoryLimitBytes: limit})
	if _, err := gpu.Alloc(ctx, limit+1); !errors.Is(err, abi.StatusMemoryLimit) && !errors.Is(err, abi.StatusOutOfMemory) {
		t.Errorf("more than the limit: got %v", err)
	}
	free, total, err := gpu.MemInfo(ctx)
	if err != nil || free > limit || total != limit {
		t.Errorf("MemInfo = %d, %d, %v with a limit of %d", free, total, err, limit)
	}
	p, err := gpu.Alloc(ctx, limit/2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gpu.Alloc(ctx, limit/2+1); err == nil {
		t.Error("the second half and a byte was allocated")
	}
	if err := gpu.Free(ctx, p); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}
