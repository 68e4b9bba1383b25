package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// offGPU is a guest whose endless kernel is off the GPU nearly all the time: its cap is one
// percent.
type offGPU struct {
	t       *testing.T
	h       *host.Host
	by      *bystander
	dev     *driver.Device
	gpu     *driver.Context
	kernel  *driver.Pending
	started time.Time
}

// endlessLimit is the GPU time after which that kernel is ended.
const endlessLimit = 500 * time.Millisecond

// newOffGPU starts such a guest beside a bystander on a GPU that can suspend a running kernel, and
// waits until that has happened.
func newOffGPU(t *testing.T) *offGPU {
	t.Helper()
	o := &offGPU{t: t, h: host.Start(t, "dfq", "--mode", "slices")}
	o.by = newBystander(t, o.h)
	o.dev = o.h.NewGuest(api.VMSpec{Name: "off", Cap: 0.01, KernelTimeLimit: endlessLimit})
	o.gpu = contextOf(t, o.dev)
	o.launch()
	return o
}

// launch launches the kernel, and waits until it is off the GPU. On a busy host the daemon may not
// get to suspend it before its time limit: then it is launched again.
func (o *offGPU) launch() {
	o.t.Helper()
	const attempts = 5
	for range attempts {
		var err error
		if o.kernel, err = o.gpu.Own().Launch(o.t.Context(), function(o.t, o.gpu, badKernels, "endless"), one, one, 0); err != nil {
			o.t.Fatal(err)
		}
		o.started = time.Now()
		if o.awaitOff() {
			return
		}
		o.ends()
		if err := o.gpu.Reset(o.t.Context()); err != nil {
			o.t.Fatal(err)
		}
	}
	o.t.Fatalf("none of %d kernels was taken off the GPU before its time limit: %+v", attempts, o.h.VM("off"))
}

// awaitOff waits until the context is off the GPU, as recorded on disk. It returns false if the
// kernel ends before.
func (o *offGPU) awaitOff() (off bool) {
	o.t.Helper()
	o.h.Until("the guest's context to be off the GPU", func() error {
		if o.kernel.Done() {
			return nil
		}
		if v := o.h.VM("off"); v.Control.Disabled != 1 {
			return fmt.Errorf("%+v", v.Control)
		}
		if n := len(o.holds()); n != 1 {
			return fmt.Errorf("%d contexts are noted", n)
		}
		off = true
		return nil
	})
	return off
}

// holds returns the contexts that are recorded to be off the GPU.
func (o *offGPU) holds() []string {
	o.t.Helper()
	entries, err := os.ReadDir(filepath.Join(o.h.Dir, "holds"))
	if err != nil {
		o.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// awaitClear waits until no context is recorded.
func (o *offGPU) awaitClear() {
	o.t.Helper()
	o.h.Until("nothing to be noted", func() error {
		if names := o.holds(); len(names) > 0 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

// ends waits until the kernel's time limit ends it, which shows that it runs again.
func (o *offGPU) ends() {
	o.t.Helper()
	wantError(o.t, "the kernel that was off the GPU", o.kernel.Wait(o.t.Context()), abi.StatusTimeLimit)
}

// TestOffTheGPU checks that time off the GPU counts neither for the kernel nor for the guest, and
// that what the guest then computes is right.
func TestOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	o.h.Until("a while", func() error {
		if d := time.Since(o.started); d < 3*endlessLimit {
			return fmt.Errorf("%v", d)
		}
		return nil
	})
	if o.kernel.Done() {
		t.Fatalf("a kernel that was off the GPU nearly all the time ended: %v", o.kernel.Wait(t.Context()))
	}
	v := o.h.VM("off")
	if v.GPUSeconds > endlessLimit.Seconds() || v.Control.Contexts != 1 || v.Control.Disables == 0 || v.Control.DisableSeconds == 0 || v.Control.Errors != 0 {
		t.Errorf("used %v s; %+v", v.GPUSeconds, v.Control)
	}
	o.by.goesOn()
	none := 0.0
	if _, err := o.h.Client.UpdateVM(t.Context(), "off", api.VMUpdate{Cap: &none}); err != nil {
		t.Fatal(err)
	}
	o.ends()
	o.awaitClear()
	if err := o.gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, o.gpu)
}

// TestDaemonKilledWithContextsOff checks that the executor resumes its context by itself, in the
// time after which suspensions end.
func TestDaemonKilledWithContextsOff(t *testing.T) {
	o := newOffGPU(t)
	if err := o.h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if n := len(o.holds()); n != 1 {
		t.Errorf("%d contexts are noted", n)
	}
	o.by.goesOn()
	o.ends()
	// Its kernel takes a quarter of that, and the limit counts from the daemon's last heartbeat.
	if took := time.Since(killed); took < ipc.SuspensionLimit/2 {
		t.Errorf("its kernel ended %v after the daemon", took)
	}
	// The next daemon has nothing to resume.
	o.h.StartDaemon()
	o.awaitClear()
	o.by.goesOn()
}

// TestDaemonRestartedWithContextsOff checks that the next daemon resumes what the previous one
// suspended before it answers requests.
func TestDaemonRestartedWithContextsOff(t *testing.T) {
	o := newOffGPU(t)
	killed := time.Now()
	if err := o.h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	o.h.Config.GPUs[0].DisableAfter = -1 // so that the cap does not suspend it again
	o.h.StartDaemon()
	late := time.Since(killed) > ipc.SuspensionLimit/2 // the executor may have resumed it
	if names := o.holds(); len(names) != 0 {
		t.Errorf("noted: %v", names)
	}
	if v := o.h.VM("off"); v.Control.Contexts != 1 || v.Control.Disabled != 0 || v.Control.EnableSeconds == 0 && !late {
		t.Errorf("%+v", v.Control)
	}
	unlimited := 0.0
	if _, err := o.h.Client.UpdateVM(t.Context(), "off", api.VMUpdate{Cap: &unlimited}); err != nil {
		t.Fatal(err)
	}
	o.ends()
	o.by.goesOn()
}

// TestDaemonEndsWithContextsOff checks that a daemon which shuts down leaves no context off the GPU
// and no time slices set.
func TestDaemonEndsWithContextsOff(t *testing.T) {
	o := newOffGPU(t)
	if err := o.h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	if names := o.holds(); len(names) != 0 {
		t.Errorf("noted: %v", names)
	}
	o.ends()
	o.by.goesOn()
	o.h.StartDaemon()
}

// TestExecutorKilledOffTheGPU checks that its context is lost, as usual, and that the next one is
// not affected.
func TestExecutorKilledOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	executors, err := proc.Children(o.h.VM("off").PID)
	if err != nil || len(executors) != 1 {
		t.Fatalf("executors %v, %v", executors, err)
	}
	if err := unix.Kill(executors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantError(t, "the kernel under way", o.kernel.Wait(t.Context()), abi.StatusContextLost)
	o.awaitClear()
	o.by.goesOn()
	if err := o.gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, o.gpu)
	o.launch() // and that is suspended as well
}

// TestResetOffTheGPU checks that a guest may reset a context while it is off the GPU.
func TestResetOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	if err := o.gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, o.gpu)
	if v := o.h.VM("off"); v.Control.Errors != 0 {
		t.Errorf("%+v", v.Control)
	}
	o.by.goesOn()
	o.launch()
}

// TestGuestKilledOffTheGPU checks that nothing of the guest remains.
func TestGuestKilledOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	if err := unix.Kill(o.h.VM("off").PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o.h.Until("the guest to be shown as lost", func() error {
		if v := o.h.VM("off"); v.Lost == "" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	o.awaitClear()
	o.by.goesOn()
	works(t, newContext(t, o.h, api.VMSpec{Name: "off"}))
}

// TestTimeSlices checks that guests that always have kernels share a GPU by weight, with time
// slices of the hardware and without suspensions.
func TestTimeSlices(t *testing.T) {
	h := host.Start(t, "dfq", "--mode", "slices")
	// The short guest's queue must outlast moments in which the guest, which sends more, gets no
	// processor.
	busy(t, h, api.VMSpec{Name: "long", Weight: 1}, 3000)
	busy(t, h, api.VMSpec{Name: "short", Weight: 4}, 1000)
	h.Until("time slices by weight", func() error {
		long, short := h.VM("long").Control, h.VM("short").Control
		if long.TimeSliceSeconds == 0 || short.TimeSliceSeconds < 2*long.TimeSliceSeconds {
			return fmt.Errorf("%+v\n%+v", long, short)
		}
		return nil
	})
	h.Until("shares by weight", func() error {
		long, short := used(h)
		if r := short / long; r < 3 || r > 5 {
			return fmt.Errorf("by weight 1 %.3f s, by weight 4 %.3f s", long, short)
		}
		return nil
	})
	// By priority, an urgent guest waits no longer than a short slice.
	ceiling, hpf := 3, "hpf"
	if _, err := h.Client.UpdateVM(t.Context(), "short", api.VMUpdate{PriorityCeiling: &ceiling}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Client.UpdateGPU(t.Context(), host.GPUName, api.GPUUpdate{Policy: &hpf}); err != nil {
		t.Fatal(err)
	}
	h.Until("time slices by priority", func() error {
		long, short := h.VM("long").Control, h.VM("short").Control
		if long.TimeSliceSeconds > 0.001 || short.TimeSliceSeconds < 0.01 {
			return fmt.Errorf("%+v\n%+v", long, short)
		}
		return nil
	})
	none := "none"
	if _, err := h.Client.UpdateGPU(t.Context(), host.GPUName, api.GPUUpdate{Policy: &none}); err != nil {
		t.Fatal(err)
	}
	h.Until("the driver's own slices", func() error {
		if c := h.VM("long").Control; c.TimeSliceSeconds != 0 || c.Errors != 0 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}
