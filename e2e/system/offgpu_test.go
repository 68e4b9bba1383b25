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

// offGPU is a guest whose endless kernel is off the GPU nearly all the time: it has a
// cap of a hundredth.
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

// newOffGPU starts one beside a bystander on a GPU that takes kernels off in
// mid-kernel, and waits until that has happened.
func newOffGPU(t *testing.T) *offGPU {
	t.Helper()
	o := &offGPU{t: t, h: host.Start(t, "dfq", "--mode", "slices")}
	o.by = newBystander(t, o.h)
	o.dev = o.h.NewGuest(api.VMSpec{Name: "off", Cap: 0.01, KernelTimeLimit: endlessLimit})
	o.gpu = contextOf(t, o.dev)
	o.launch()
	return o
}

// launch begins the kernel, and waits until it is off.
func (o *offGPU) launch() {
	o.t.Helper()
	var err error
	if o.kernel, err = o.gpu.Own().Launch(o.t.Context(), function(o.t, o.gpu, misdeeds, "endless"), one, one, 0); err != nil {
		o.t.Fatal(err)
	}
	o.started = time.Now()
	o.awaitOff()
}

// awaitOff waits until the context is off the GPU, which is written down then.
func (o *offGPU) awaitOff() {
	o.t.Helper()
	o.h.Until("the guest's context to be off the GPU", func() error {
		if v := o.h.VM("off"); v.Control.Disabled != 1 {
			return fmt.Errorf("%+v", v.Control)
		}
		if n := len(o.holds()); n != 1 {
			return fmt.Errorf("%d contexts are noted", n)
		}
		return nil
	})
}

// holds are the contexts that are noted to be off the GPU.
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

// awaitClear waits until nothing is noted any more.
func (o *offGPU) awaitClear() {
	o.t.Helper()
	o.h.Until("nothing to be noted", func() error {
		if names := o.holds(); len(names) > 0 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

// ends waits for the kernel's end by its time limit: it runs again.
func (o *offGPU) ends() {
	o.t.Helper()
	wants(o.t, "the kernel that was off the GPU", o.kernel.Wait(o.t.Context()), abi.StatusTimeLimit)
}

// TestOffTheGPU: the time off the GPU is no time of the kernel's, nor the guest's; and
// what the guest then does has right results.
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

// TestDaemonKilledWithContextsOff: the executor puts its context back by itself, in
// the time after which suspensions end.
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
	// Its kernel takes a quarter of that; and the limit is counted from the daemon's last
	// heartbeat.
	if took := time.Since(killed); took < ipc.SuspensionLimit/2 {
		t.Errorf("its kernel ended %v after the daemon", took)
	}
	// The next daemon has nothing to do, and does it.
	o.h.StartDaemon()
	o.awaitClear()
	o.by.goesOn()
}

// TestDaemonRestartedWithContextsOff: the next daemon puts back what the last one took
// off, before it answers anything.
func TestDaemonRestartedWithContextsOff(t *testing.T) {
	o := newOffGPU(t)
	killed := time.Now()
	if err := o.h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	o.h.Config.GPUs[0].DeepAfter = -1 // so that the cap does not take it off again
	o.h.StartDaemon()
	late := time.Since(killed) > ipc.SuspensionLimit/2 // the executor may have put it back
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

// TestDaemonEndsWithContextsOff: one that ends in an orderly way leaves nobody off the
// GPU, and no time slices.
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

// TestExecutorKilledOffTheGPU: its context is lost, as else, and the next has no traces
// of it.
func TestExecutorKilledOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	executors, err := proc.Children(o.h.VM("off").PID)
	if err != nil || len(executors) != 1 {
		t.Fatalf("executors %v, %v", executors, err)
	}
	if err := unix.Kill(executors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wants(t, "the kernel under way", o.kernel.Wait(t.Context()), abi.StatusContextLost)
	o.awaitClear()
	o.by.goesOn()
	if err := o.gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, o.gpu)
	o.launch() // and that is taken off as well
}

// TestResetOffTheGPU: a guest may reset a context while it is off the GPU.
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

// TestGuestKilledOffTheGPU: nothing of it is left.
func TestGuestKilledOffTheGPU(t *testing.T) {
	o := newOffGPU(t)
	if err := unix.Kill(o.h.VM("off").PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o.h.Until("the guest to leave the list", func() error {
		vms, err := o.h.Client.VMs(t.Context())
		if err != nil || len(vms) != 1 {
			return fmt.Errorf("%d guests, %v", len(vms), err)
		}
		return nil
	})
	o.awaitClear()
	o.by.goesOn()
	works(t, newContext(t, o.h, api.VMSpec{Name: "off"}))
}

// TestTimeSlices: guests that always have kernels share a GPU by weight, by slices
// that the hardware keeps, and nobody is suspended for it.
func TestTimeSlices(t *testing.T) {
	h := host.Start(t, "dfq", "--mode", "slices")
	// What waits of the short ones outlasts a while in which their guest, which is to send
	// more, has no processor.
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
	// By priority, who is urgent waits for no more than a short slice.
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
