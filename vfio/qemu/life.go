package qemu

import (
	"context"
	"errors"
	"fmt"

	"vgpud/internal/qmpconn"
	"vgpud/vfio/qemu/console"
)

var errReset = errors.New("the guest was reset")

// Reset resets the VM like its reset button, and waits for the reset. Programs in the guest end
// with an error. [VM.Ready] waits for the new boot.
func (v *VM) Reset(ctx context.Context) error {
	reset := v.Expect(Named("RESET"))
	defer reset.Forget()
	v.guest.EndBoot(errReset)
	if err := v.Execute(ctx, "system_reset", nil, nil); err != nil {
		return err
	}
	_, err := reset.Wait(ctx)
	return err
}

// Reboot makes the guest restart itself, and waits for the restart.
func (v *VM) Reboot(ctx context.Context) error { return v.restart(ctx, console.Reboot) }

// Crash makes the guest's kernel panic, and waits for the restart, which follows at once.
func (v *VM) Crash(ctx context.Context) error { return v.restart(ctx, console.Panic) }

func (v *VM) restart(ctx context.Context, action string) error {
	reset := v.Expect(Named("RESET"))
	defer reset.Forget()
	if err := v.guest.Power(action); err != nil {
		return v.fail(action, err)
	}
	_, err := reset.Wait(ctx)
	return err
}

// PowerOff makes the guest power itself off, and waits for the end of QEMU.
func (v *VM) PowerOff(ctx context.Context) error {
	if err := v.guest.Power(console.PowerOff); err != nil {
		return v.fail(console.PowerOff, err)
	}
	return v.Wait(ctx)
}

// Stop stops the guest's processors.
func (v *VM) Stop(ctx context.Context) error { return v.Execute(ctx, "stop", nil, nil) }

// Continue lets the guest's processors run after Stop or Options.Stopped.
func (v *VM) Continue(ctx context.Context) error { return v.Execute(ctx, "cont", nil, nil) }

// Plug adds a device to the running VM, at the port in d.Bus.
func (v *VM) Plug(ctx context.Context, d Device) error {
	return v.Execute(ctx, "device_add", d.json(d.Bus, ""), nil)
}

// Unplug asks the guest to release a device, and waits until the device is gone. Linux waits for 5
// s first.
func (v *VM) Unplug(ctx context.Context, id string) error {
	about := func(name string, ev qmpconn.Event) bool { return ev.Event == name && ev.Data["device"] == id }
	const refused = "DEVICE_UNPLUG_GUEST_ERROR"
	gone := v.Expect(func(ev qmpconn.Event) bool { return about("DEVICE_DELETED", ev) || about(refused, ev) })
	defer gone.Forget()
	if err := v.Execute(ctx, "device_del", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	ev, err := gone.Wait(ctx)
	if err == nil && ev.Event == refused {
		err = fmt.Errorf("VM %s: unplug %s: the guest refuses", v.opts.Name, id)
	}
	return err
}
