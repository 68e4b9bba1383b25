package vm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/qemu"
)

// TestLife ends a working VM in every possible way, one after the other, while two others share the
// GPU with it. It checks what remains and what the others notice; they get their entitlement
// meanwhile. After each end the virtual GPU works as before.
func TestLife(t *testing.T) {
	h := withTimeout(host.Start(t, "dfq", slowGPU...))
	observer := observe(t, h)
	// The weights are opposite to the shares by kernel length alone.
	light, heavy := bystander(t, h, "light", 1), bystander(t, h, "heavy", 4)
	v := newVictim(t, h, observer, "guest")
	light.ready()
	heavy.ready()
	one, other := light.begin("light", "", long), heavy.begin("heavy", "", often)
	v.others = map[string]*worker{"light": one, "heavy": other}
	v.measure()
	for _, chapter := range []struct {
		name string
		run  func(*testing.T, *victim)
	}{
		{"plug and unplug", plugs},
		{"vgpuctl attach and detach", attaches},
		{"reset", func(_ *testing.T, v *victim) { v.restarts(v.sharesKept(v.vm.Reset)) }},
		{"reboot", func(_ *testing.T, v *victim) { v.restarts(v.vm.Reboot) }},
		{"panic", func(_ *testing.T, v *victim) { v.restarts(v.vm.Crash) }},
		{"power-off", func(_ *testing.T, v *victim) { v.ends(v.vm.PowerOff) }},
		{"SIGKILL", func(_ *testing.T, v *victim) {
			v.boots()
			v.ends(v.sharesKept(func(context.Context) error { return v.vm.Kill() }))
		}},
	} {
		if !t.Run(chapter.name, func(t *testing.T) {
			chapter.run(t, v)
			one.goesOn()
			other.goesOn()
		}) {
			return // the next way begins where this one should have ended
		}
	}
	one.end()
	other.end()
}

// restarts restarts a working VM in some way.
func (v *victim) restarts(how func(context.Context) error) {
	v.tb.Helper()
	w := v.begin("guest", "", short)
	w.goesOn()
	v.awaitCounted()
	v.do(how)
	w.awaitLost()
	v.ready()
	v.leaves(v.idle)
	v.works("")
}

// ends ends a working VM in some way.
func (v *victim) ends(how func(context.Context) error) {
	v.tb.Helper()
	w := v.begin("guest", "", short)
	w.goesOn()
	v.awaitCounted()
	v.do(how)
	w.awaitLost()
	v.gone()
}

// sharesKept runs how and then checks that the others get their entitlement, also while the VM
// boots.
func (v *victim) sharesKept(how func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := how(ctx); err != nil {
			return err
		}
		awaitShares(v.tb, v.h, v.others)
		return nil
	}
}

// awaitCounted waits until what a working guest holds is visible, so that its end is visible, too.
func (v *victim) awaitCounted() {
	v.tb.Helper()
	if f := v.h.Footprint(v.gpu.Name, v.observer); f.Contexts == 0 || f.Channels == 0 || f.Executors == 0 {
		v.tb.Errorf("a guest at work has %+v", f)
	}
}

// plugs plugs a second virtual GPU into a working VM and unplugs it, also while working.
func plugs(t *testing.T, v *victim) {
	staying := v.begin("guest", "", short)
	second := v.h.NewVM(api.VMSpec{Name: "plugged"})
	before := v.h.Footprint(second.Name, v.observer)
	for round := range 2 { // plugging it again must work as well
		v.do(func(ctx context.Context) error {
			return v.vm.Plug(ctx, qemu.Device{ID: second.Name, Socket: second.Socket, Bus: qemu.SparePort(0)})
		})
		w := v.begin(second.Name, v.address(second.Name), short)
		w.goesOn()
		if round == 0 {
			awaitShares(t, v.h, v.others)
		}
		v.do(func(ctx context.Context) error { return v.vm.Unplug(ctx, second.Name) })
		w.awaitLost()
		v.h.Until("the end of what the unplugged one had", func() error {
			return before.LeftBehind(v.h.Footprint(second.Name, v.observer))
		})
		v.h.Until("a free virtual GPU", func() error { return free(t.Context(), second.Socket) })
		staying.goesOn()
	}
	staying.end()
	if err := v.h.Client.ForceDeleteVM(t.Context(), second.Name); err != nil {
		t.Fatal(err)
	}
	v.leaves(v.idle)
}

// attaches has an operator attach a virtual GPU to a VM and detach it.
func attaches(t *testing.T, v *victim) {
	const name, limit = "attached", "--wait=2m"
	vgpuctl(t, v.h, "attach", "--qmp", v.vm.QMPSocket(), "--name", name, "--bar2", "64MiB", limit)
	w := v.begin(name, v.address("vgpu-"+name), short)
	w.goesOn()
	vgpuctl(t, v.h, "detach", "--qmp", v.vm.QMPSocket(), "--name", name, limit)
	w.awaitLost()
	if _, err := v.h.Client.VM(t.Context(), name); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the daemon says of what was detached: %v", err)
	}
	v.leaves(v.idle)
	v.works("")
}

// vgpuctl runs the operator's command line.
func vgpuctl(t *testing.T, h *host.Host, args ...string) {
	t.Helper()
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "vgpuctl"), append([]string{"--socket", h.Config.Socket}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("vgpuctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// bystander returns a VM with a virtual GPU of that weight.
func bystander(t *testing.T, h *host.Host, name string, weight float64) *machine {
	t.Helper()
	return boot(t, h, qemu.Options{}, h.NewVM(api.VMSpec{Name: name, Weight: weight}))
}

// observe creates a guest without a VM, for reading the GPU's state.
func observe(t *testing.T, h *host.Host) *driver.Context {
	t.Helper()
	c, err := h.NewGuest(api.VMSpec{Name: "observer"}).NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// victim is a VM that is about to be ended.
type victim struct {
	*machine
	gpu      api.VM
	observer *driver.Context
	others   map[string]*worker // working all the time
	alone    host.Footprint     // without a VMM
	idle     host.Footprint     // booted, without work
}

// newVictim starts a VM.
func newVictim(t *testing.T, h *host.Host, observer *driver.Context, name string) *victim {
	t.Helper()
	v := &victim{gpu: h.NewVM(api.VMSpec{Name: name}), observer: observer}
	v.alone = h.Footprint(name, observer)
	v.machine = boot(t, h, qemu.Options{SparePorts: 1}, v.gpu)
	return v
}

// measure measures what the host holds for an idle VM; the others work before that and until the
// end.
func (v *victim) measure() {
	v.tb.Helper()
	v.ready()
	v.h.Until("the end of the agent's check", func() error {
		if v.idle = v.h.Footprint(v.gpu.Name, v.observer); v.idle.Contexts+v.idle.Channels+v.idle.Executors > 0 {
			return fmt.Errorf("%+v", v.idle)
		}
		return nil
	})
	files := v.alone.VM
	v.alone = v.idle
	v.alone.VM = files // only the VM's own process knows whether there is a VMM
}

// boots starts another VM with the virtual GPU of the one that has ended.
func (v *victim) boots() {
	v.tb.Helper()
	v.machine = boot(v.tb, v.h, qemu.Options{}, v.gpu)
	v.ready()
}

// leaves waits until the host holds no more for the guest than before.
func (v *victim) leaves(before host.Footprint) {
	v.tb.Helper()
	v.h.Until("the end of what "+v.gpu.Name+" had", func() error {
		return before.LeftBehind(v.h.Footprint(v.gpu.Name, v.observer))
	})
}

// gone waits until nothing is held for a VM that no longer exists: not by the host's processes, and
// no context or channel on its virtual GPU.
func (v *victim) gone() {
	v.tb.Helper()
	v.h.Until("the VMM's end", func() error {
		if v.h.VM(v.gpu.Name).Attached {
			return fmt.Errorf("%s is attached", v.gpu.Name)
		}
		return nil
	})
	v.leaves(v.alone)
	v.h.Until("a free virtual GPU", func() error { return free(v.tb.Context(), v.gpu.Socket) })
}

// free attaches to a virtual GPU and counts what is on it.
func free(ctx context.Context, socket string) (err error) {
	bus, err := driver.DialVFIOUser(ctx, socket)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := bus.Close(); err == nil {
			err = cerr
		}
	}()
	counts := make(map[uint32]int)
	for _, reg := range []uint32{abi.RegContexts, abi.RegChannels} {
		n, err := bus.Read(reg)
		if err != nil {
			return err
		}
		counts[reg] = int(n)
	}
	shared := bus.Shared()
	contexts, channels := 0, 0
	for slot := range counts[abi.RegContexts] {
		if state, _ := abi.UnpackState[abi.ContextState](abi.LoadWord(shared, abi.ContextWord(slot))); state != abi.ContextFree {
			contexts++
		}
	}
	for slot := range counts[abi.RegChannels] {
		at := abi.ChannelPage(slot) + abi.ChannelStateWord
		if state, _ := abi.UnpackState[abi.ChannelState](abi.LoadWord(shared, at)); state != abi.ChannelFree {
			channels++
		}
	}
	if contexts+channels > 0 {
		return fmt.Errorf("%d contexts and %d channels are left", contexts, channels)
	}
	return nil
}
