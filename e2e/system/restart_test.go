package system

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestDaemonKilled kills the daemon while guests work. They go on; the next daemon finds them with
// their weights and usage.
func TestDaemonKilled(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	weight := 3.0
	if _, err := h.Client.UpdateVM(ctx, "bystander", api.VMUpdate{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	h.Until("an account of the bystander's work", func() error {
		if h.VM("bystander").GPUSeconds == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	before := h.VM("bystander")
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	by.goesOn()
	if _, err := h.Client.VMs(ctx); err == nil {
		t.Error("a dead daemon answers")
	}

	h.StartDaemon()
	after := h.VM("bystander")
	if after.Weight != weight || after.PID != before.PID || after.GPUSeconds < before.GPUSeconds ||
		after.Kernels < before.Kernels || !after.Attached {
		t.Errorf("before the daemon's end %+v\nafter it %+v", before, after)
	}
	h.Until("more to be accounted by the new daemon", func() error {
		if now := h.VM("bystander"); now.GPUSeconds <= after.GPUSeconds {
			return fmt.Errorf("%v s as before", now.GPUSeconds)
		}
		return nil
	})
	weight = 5
	if v, err := h.Client.UpdateVM(ctx, "bystander", api.VMUpdate{Weight: &weight}); err != nil || v.Weight != weight {
		t.Errorf("UpdateVM = %+v, %v", v, err)
	}
	by.goesOn()
	// A daemon that shuts down leaves them running, too.
	if err := h.Daemon.End(); err != nil {
		t.Error(err)
	}
	by.goesOn()
	h.StartDaemon()
	if v := h.VM("bystander"); v.Weight != weight || v.GPUSeconds < after.GPUSeconds {
		t.Errorf("after the second daemon %+v", v)
	}
}

// TestGuestProcessKilled kills a guest's virtual GPU.
func TestGuestProcessKilled(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	free, _, err := by.gpu.MemInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	gpu := newContext(t, h, api.VMSpec{Name: "guest"})
	if _, err := gpu.Alloc(ctx, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(h.VM("guest").PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The executor ends a moment later, and still executes commands until then.
	h.Until("a call to fail", func() error {
		if _, err = gpu.Alloc(ctx, 4096); err == nil {
			return errors.New("it did not")
		}
		return nil
	})
	wantError(t, "a call after the end", err, driver.ErrGone)
	h.Until("the guest to be shown as lost", func() error {
		if v := h.VM("guest"); v.Lost == "" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	h.Until("its memory to be free", func() error {
		if now, _, err := by.gpu.MemInfo(ctx); err != nil || now < free {
			return fmt.Errorf("%d of %d bytes, %v", now, free, err)
		}
		return nil
	})
	by.goesOn()
	works(t, newContext(t, h, api.VMSpec{Name: "guest"})) // the name is free again
}

// TestGPUKilled kills the soft GPU: all its users get an error, and the daemon keeps running.
func TestGPUKilled(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	gpu := newContext(t, h, api.VMSpec{Name: "guest"})
	works(t, gpu)
	p, err := gpu.Own().Launch(ctx, function(t, gpu, badKernels, "endless"), one, one, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	wantError(t, "the kernel under way", p.Wait(ctx), abi.StatusDeviceLost)
	_, err = gpu.Alloc(ctx, 64)
	wantError(t, "a call after", err, abi.StatusDeviceLost)
	h.Until("health says so", func() error {
		health, err := h.Client.Health(ctx)
		if err == nil && (health.Healthy || !strings.Contains(strings.Join(health.Problems, ""), host.GPUName)) {
			err = fmt.Errorf("health is %+v", health)
		}
		return err
	})
	if v := h.VM("guest"); !v.Attached {
		t.Errorf("the guest is gone: %+v", v)
	}
}

// TestGPUComesBack kills the soft GPU and starts another: the guests' contexts are usable again
// after a reset, and accounted, and other guests are not affected.
func TestGPUComesBack(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	gpu, idle := contextOf(t, dev), contextOf(t, dev)
	works(t, gpu)
	if err := h.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	// A guest without requests learns of it too, and its memory is gone.
	h.Until("the contexts to be without a channel group", func() error {
		if v := h.VM("guest"); len(v.Groups) != 0 {
			return fmt.Errorf("they have %v", v.Groups)
		}
		return nil
	})
	wantError(t, "a reset without a GPU", gpu.Reset(ctx), abi.ErrorDeviceLost)

	h.StartGPU()
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
	_, err := idle.Alloc(ctx, 64)
	wantError(t, "a call of a context that was not reset", err, abi.StatusDeviceLost)
	works(t, gpu) // which is not affected
	if err := idle.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, idle)
	works(t, contextOf(t, dev))

	h.Until("the daemon to be well", func() error {
		health, err := h.Client.Health(ctx)
		if err == nil && !health.Healthy {
			err = fmt.Errorf("health is %+v", health)
		}
		return err
	})
	before := h.VM("guest").GPUSeconds
	h.Until("new work to be accounted", func() error {
		works(t, gpu)
		if now := h.VM("guest").GPUSeconds; now <= before {
			return fmt.Errorf("%v s as before", now)
		}
		return nil
	})
}
