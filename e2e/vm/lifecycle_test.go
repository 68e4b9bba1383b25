package vm

import (
	"context"
	"fmt"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/qemu"
)

// TestLives ends VMs at work in every way that there is, while two others share
// the GPU with them, and looks at what is left and at what the others notice.
func TestLives(t *testing.T) {
	h := host.Start(t, "dfq", slow...)
	observer := observe(t, h)
	light, heavy := bystander(t, h, "light", 1), bystander(t, h, "heavy", 4)
	light.ready()
	heavy.ready()
	one := light.begin("light", "", short)
	other := heavy.begin("heavy", "", long)
	// undisturbed is what every way of ending must leave the others.
	undisturbed := func(t *testing.T) {
		t.Helper()
		one.goesOn()
		other.goesOn()
	}

	t.Run("reset", func(t *testing.T) {
		v := newVictim(t, h, observer, "reset")
		for range 2 { // the device is as good after a reset as before
			w := v.begin("reset", "", short)
			w.goesOn()
			v.do(v.vm.Reset)
			w.lost()
			v.ready()
			v.leaves(v.idle)
			undisturbed(t)
		}
		v.works("")
	})
	t.Run("power-off", func(t *testing.T) {
		v := newVictim(t, h, observer, "off")
		w := v.begin("off", "", short)
		w.goesOn()
		v.do(v.vm.PowerOff)
		w.lost()
		v.gone()
		undisturbed(t)
	})
	t.Run("crash", func(t *testing.T) {
		v := newVictim(t, h, observer, "crash")
		w := v.begin("crash", "", short)
		w.goesOn()
		v.do(v.vm.Crash) // the kernel panics, and the VM is reset for it
		w.lost()
		v.ready()
		v.leaves(v.idle)
		v.works("")
		undisturbed(t)
	})
	t.Run("kill", func(t *testing.T) {
		v := newVictim(t, h, observer, "kill")
		w := v.begin("kill", "", short)
		w.goesOn()
		if err := v.vm.Kill(); err != nil {
			t.Fatal(err)
		}
		w.lost()
		v.gone()
		undisturbed(t)
		// The virtual GPU is there for the next VM.
		next := boot(t, h, qemu.Options{}, v.gpu)
		next.ready()
		next.works("")
	})
	t.Run("shares", func(t *testing.T) { held(t, h, map[string]*worker{"light": one, "heavy": other}) })
	one.end()
	other.end()
}

// bystander is a VM with a virtual GPU of that weight.
func bystander(t *testing.T, h *host.Host, name string, weight float64) *machine {
	t.Helper()
	return boot(t, h, qemu.Options{}, h.NewVM(api.VMSpec{Name: name, Weight: weight}))
}

// observe makes a guest without a VM, to ask the GPU by.
func observe(t *testing.T, h *host.Host) *driver.Context {
	t.Helper()
	c, err := h.NewGuest(api.VMSpec{Name: "observer"}).NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// victim is a VM to which something is to happen.
type victim struct {
	*machine
	gpu      api.VM
	observer *driver.Context
	alone    host.Footprint // before its VMM came
	idle     host.Footprint // booted, with nothing at work
}

func newVictim(t *testing.T, h *host.Host, observer *driver.Context, name string) *victim {
	t.Helper()
	v := &victim{gpu: h.NewVM(api.VMSpec{Name: name}), observer: observer}
	v.alone = h.Footprint(name, observer)
	v.machine = boot(t, h, qemu.Options{}, v.gpu)
	v.ready()
	v.idle = h.Footprint(name, observer)
	return v
}

// leaves waits until what the host holds for the guest is down to what it was.
func (v *victim) leaves(before host.Footprint) {
	v.tb.Helper()
	v.h.Until("the end of what "+v.gpu.Name+" had", func() error {
		return before.LeftBehind(v.h.Footprint(v.gpu.Name, v.observer))
	})
}

// gone waits until nothing is held for a VM that is no more: not by the host's
// processes, and no context or channel on its virtual GPU.
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
