// Package doctor finds out what a host can do for guests' GPUs: of each ability
// whether it is there, or why not and what to do. It changes nothing, and what it is
// not allowed to look at it says so of.
//
// All that it looks at is a [Host], which tests make up.
package doctor

import (
	"context"
	"io/fs"
	"time"

	"vgpud/cmd/internal/ability"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
)

// The abilities that are looked at here. Those of NVIDIA GPUs that `vgpud probe`
// names come between them.
const (
	Program = "vgpud"
	Daemon  = "daemon"
	GPU     = "gpu"
	// Accounting is what one of the daemon's GPUs is watched by.
	Accounting = "accounting"
	// Confinement is of guests' processes.
	Confinement = "confinement"
	Libcuda     = "libcuda"
	NVML        = "nvml"
	SoftGPU     = "soft gpu"
	KVM         = "kvm"
	QEMU        = "qemu"
	Libvirt     = "libvirt"
	Hook        = "hook"
)

// Host is what the doctor looks at.
type Host struct {
	// Files is the root of the file system.
	Files fs.FS
	// Access is whether this process may read and write the file at a path from the
	// root.
	Access func(path string) error
	// Find finds a program by name: beside this one, in $PATH, or where systems
	// keep what only root runs.
	Find func(name string) (path string, err error)
	// Run runs a program to its end. Where it can be run and fails, the error says
	// what it wrote on standard error.
	Run func(ctx context.Context, program string, args ...string) (output string, err error)
	// Health and GPUs ask the daemon.
	Health func(ctx context.Context) (api.Health, error)
	GPUs   func(ctx context.Context) ([]api.GPU, error)
	// Inventory asks NVIDIA's driver which GPUs there are.
	Inventory func(ctx context.Context) (inventory.Inventory, error)
	// Domains counts libvirt's domains, over a connection of its own.
	Domains func(ctx context.Context) (int, error)
	// Version is this program's.
	Version string
	// QEMU are the names under which QEMU may be.
	QEMU []string
}

// patience bounds one question. Making a CUDA context takes most of a second, and a
// driver that loads its firmware first many.
const patience = 30 * time.Second

// Report is what was found.
type Report struct {
	// Ready is whether guests can have GPUs here: nothing is missing that is needed.
	Ready     bool              `json:"ready"`
	Abilities []ability.Ability `json:"abilities"`
}

// Examine looks at everything. It takes as long as the slowest of the programs that
// it asks.
func Examine(ctx context.Context, h *Host) Report {
	checks := []func(context.Context, *Host) []ability.Ability{
		daemon, program, nvidia, nvml, kvm, qemu, daemonOfLibvirt, hook,
	}
	found := make([]chan []ability.Ability, len(checks))
	for i, check := range checks {
		found[i] = make(chan []ability.Ability, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			found[i] <- check(ctx, h)
		}()
	}
	r := Report{Abilities: []ability.Ability{}}
	for _, f := range found {
		r.Abilities = append(r.Abilities, <-f...)
	}
	r.judge()
	return r
}

// judge marks what is needed: the program, a QEMU that can have the device, and, where
// there is a daemon, a GPU of its that is well.
func (r *Report) judge() {
	well := 0
	for _, a := range r.Abilities {
		if a.Name == GPU && a.State == ability.Present {
			well++
		}
	}
	r.Ready = true
	for i := range r.Abilities {
		a := &r.Abilities[i]
		switch a.Name {
		case Program, QEMU:
			a.Needed = true
		case GPU:
			a.Needed = well == 0 || well == 1 && a.State == ability.Present
		}
		r.Ready = r.Ready && !(a.Needed && a.State == ability.Absent)
	}
}
