package system

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestFault has a kernel write to an invalid address: its context ends, with the place in the
// error, and works again after a reset.
func TestFault(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	bad, good := contextOf(t, dev), contextOf(t, dev)

	const nowhere = driver.Ptr(0xdead_0000_1230)
	p, err := bad.Own().Launch(ctx, function(t, bad, badKernels, "poke"), driver.Dim{X: 2}, driver.Dim{X: 32}, 0, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Wait(ctx)
	wantError(t, "the kernel", err, abi.StatusIllegalAddress)
	for _, part := range []string{"poke", "block (", "thread (", fmt.Sprintf("line %d", pokeLine), fmt.Sprintf("%#x", uint64(nowhere))} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	_, err = bad.Alloc(ctx, 64)
	wantError(t, "a call of the context", err, abi.StatusIllegalAddress)

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

// TestTimeLimit runs an endless kernel in a guest with a kernel time limit.
func TestTimeLimit(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest", KernelTimeLimit: time.Second})
	gpu, other := contextOf(t, dev), contextOf(t, dev)
	p, err := gpu.Own().Launch(ctx, function(t, gpu, badKernels, "endless"), one, one, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "the kernel", p.Wait(ctx), abi.StatusTimeLimit)
	works(t, other)
	by.goesOn()
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}

// TestExecutorKilled kills the process of one of a guest's two contexts.
func TestExecutorKilled(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	gpu := contextOf(t, dev)
	executors, err := proc.Children(h.VM("guest").PID)
	if err != nil || len(executors) != 1 {
		t.Fatalf("executors of a guest with one context: %v, %v", executors, err)
	}
	other := contextOf(t, dev)
	p, err := gpu.Own().Launch(ctx, function(t, gpu, badKernels, "endless"), one, one, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(executors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantError(t, "the kernel under way", p.Wait(ctx), abi.StatusContextLost)
	_, err = gpu.Alloc(ctx, 64)
	wantError(t, "a call after", err, abi.StatusContextLost)
	works(t, other)
	by.goesOn()
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}

// TestMemoryLimit checks that a guest keeps to its limit with any number of contexts.
func TestMemoryLimit(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	const limit = 8 << 20
	dev := h.NewGuest(api.VMSpec{Name: "guest", MemoryLimitBytes: limit})
	gpu := contextOf(t, dev)
	first, err := proc.Children(h.VM("guest").PID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = gpu.Alloc(ctx, limit+1)
	wantError(t, "more than the limit", err, abi.StatusMemoryLimit)
	free, total, err := gpu.MemInfo(ctx)
	if err != nil || free > limit || total != limit {
		t.Errorf("MemInfo = %d, %d, %v with a limit of %d", free, total, err, limit)
	}
	p, err := gpu.Alloc(ctx, limit/2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = gpu.Alloc(ctx, limit/2+1)
	wantError(t, "the second half and a byte", err, abi.StatusMemoryLimit)

	// A second context gets what the first one leaves.
	other := contextOf(t, dev)
	both, err := proc.Children(h.VM("guest").PID)
	if err != nil {
		t.Fatal(err)
	}
	left := func(c *driver.Context) uint64 {
		t.Helper()
		free, _, err := c.MemInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	n := left(gpu)
	if m := left(other); m != n || n >= limit/2 {
		t.Errorf("after half of it, one context is told of %d bytes and the other of %d", n, m)
	}
	_, err = other.Alloc(ctx, limit/2)
	wantError(t, "half of it in another context", err, abi.StatusMemoryLimit)
	if _, err := other.Alloc(ctx, n); err != nil {
		t.Fatal(err)
	}
	_, err = gpu.Alloc(ctx, 1)
	wantError(t, "a byte beyond what another context has taken", err, abi.StatusMemoryLimit)
	_, err = dev.NewContext(ctx, driver.ContextOptions{})
	wantError(t, "a context that there is no memory for", err, abi.ErrorLimit)
	if err := gpu.Free(ctx, p); err != nil {
		t.Fatal(err)
	}
	if m := left(other); m != limit/2 {
		t.Errorf("%d bytes are left of what was freed, want %d", m, limit/2)
	}

	// When an executor dies, the other context gets its memory.
	for _, pid := range both {
		if slices.Contains(first, pid) {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	h.Until("its memory to be free", func() error {
		if m := left(gpu); m < limit/2+n {
			return fmt.Errorf("%d bytes of %d", m, limit/2+n)
		}
		return nil
	})
	works(t, gpu)
}
