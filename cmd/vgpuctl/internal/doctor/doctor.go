// Package doctor finds out what a host can do for guests' GPUs: whether each ability is there, or
// why not and what to do. It changes nothing, and marks what it is not allowed to check.
//
// Everything that it checks is in a [Host], so tests can replace it.
package doctor

import (
	"context"
	"io/fs"
	"time"

	"vgpud/cmd/internal/ability"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
)

// The abilities checked here. The report has those of NVIDIA GPUs, named by `vgpud probe`, among
// them.
const (
	Program = "vgpud"
	Daemon  = "daemon"
	GPU     = "gpu"
	// Accounting is the source by which one of the daemon's GPUs is accounted.
	Accounting = "accounting"
	// EventKernels is that guests' kernels on one of the daemon's GPUs are launched by stores.
	EventKernels = "event kernels"
	// Confinement is that of guests' processes.
	Confinement = "confinement"
	// Usage is the record of what guests used; it is shown if there is a problem.
	Usage   = "usage"
	Libcuda = "libcuda"
	NVML    = "nvml"
	SoftGPU = "soft gpu"
	KVM     = "kvm"
	QEMU    = "qemu"
	Libvirt = "libvirt"
	Hook    = "hook"
	// Emulator is vgpu-qemu, at the place where libvirt looks for QEMU.
	Emulator = "emulator"
)

// Host is the host to check.
type Host struct {
	// Files is the root of the file system.
	Files fs.FS
	// TryKVM makes a VM with the device at a path from the root, and ends it.
	TryKVM func(path string) error
	// Find finds a program by name: beside this one, in $PATH, or in root's directories.
	Find func(name string) (path string, err error)
	// Run runs a program to its end. If the program fails, the error has the end of its standard
	// error.
	Run func(ctx context.Context, program string, args ...string) (output string, err error)
	// Health and GPUs query the daemon.
	Health func(ctx context.Context) (api.Health, error)
	GPUs   func(ctx context.Context) ([]api.GPU, error)
	// Inventory queries NVIDIA's driver for its GPUs.
	Inventory func(ctx context.Context) (inventory.Inventory, error)
	// Domains counts libvirt's domains, over a connection of its own.
	Domains func(ctx context.Context) (int, error)
	// Version is this program's version.
	Version string
	// QEMU lists the possible names of QEMU.
	QEMU []string
}

// checkLimit bounds one check. Creating a CUDA context takes most of a second, and many if the
// driver loads its firmware first.
const checkLimit = 30 * time.Second

// Report is the result of all checks.
type Report struct {
	// Ready reports whether guests can have GPUs here: nothing needed is missing.
	Ready     bool              `json:"ready"`
	Abilities []ability.Ability `json:"abilities"`
}

// Examine runs all checks. It takes as long as the slowest.
func Examine(ctx context.Context, h *Host) Report {
	checks := []func(context.Context, *Host) []ability.Ability{
		daemon, program, nvidia, nvml, kvm, qemu, libvirtDaemon, hook, emulator,
	}
	found := make([]chan []ability.Ability, len(checks))
	for i, check := range checks {
		found[i] = make(chan []ability.Ability, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, checkLimit)
			defer cancel()
			found[i] <- check(ctx, h)
		}()
	}
	r := Report{Abilities: []ability.Ability{}}
	for _, f := range found {
		r.Abilities = append(r.Abilities, <-f...)
	}
	r.markNeeded()
	return r
}

// markNeeded marks what is needed: the program, a QEMU with the device, and, if there is a daemon,
// a healthy GPU of its.
func (r *Report) markNeeded() {
	healthy := 0
	for _, a := range r.Abilities {
		if a.Name == GPU && a.State == ability.Present {
			healthy++
		}
	}
	r.Ready = true
	for i := range r.Abilities {
		a := &r.Abilities[i]
		switch a.Name {
		case Program, QEMU:
			a.Needed = true
		case GPU:
			a.Needed = healthy == 0 || healthy == 1 && a.State == ability.Present
		}
		r.Ready = r.Ready && !(a.Needed && a.State == ability.Absent)
	}
}
