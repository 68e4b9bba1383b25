package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"vgpud/cmd/internal/ability"
	"vgpud/cmd/vgpud/internal/abilities"
	"vgpud/gpu/nvidia"
	"vgpud/gpu/nvidia/rm"
)

// tryAbilities finds out what the host's NVIDIA GPUs let vgpud do. It creates a context on each,
// and takes it off the GPU for a moment.
func tryAbilities(ctx context.Context) ability.Report {
	found := probe()
	r := ability.Report{Abilities: []ability.Ability{libcuda(&found)}}
	if found.Driver != "" {
		r.Abilities = append(r.Abilities, kernelDriver(found.Driver))
	}
	for _, g := range found.GPUs {
		for _, a := range tryGPU(ctx, g) {
			a.GPU = cmp.Or(g.PCI, g.UUID)
			r.Abilities = append(r.Abilities, a)
		}
	}
	return r
}

// libcuda returns whether CUDA's driver library is installed and lists GPUs.
func libcuda(found *probeResult) ability.Ability {
	const name, do = "libcuda", "for GPUs of kind nvidia only: install NVIDIA's driver with its libraries, and allow access to /dev/nvidia*"
	if found.Error != "" {
		return ability.Missing(name, found.Error, do)
	}
	if len(found.GPUs) == 0 {
		return ability.Missing(name, "it lists no GPU", do)
	}
	names := make([]string, len(found.GPUs))
	for i, g := range found.GPUs {
		names[i] = g.Properties.Name
	}
	return ability.Available(name, "CUDA %d.%d: %s", found.CUDA/1000, found.CUDA%1000/10, strings.Join(names, ", "))
}

// kernelDriver returns whether the driver's own calls are known, which control contexts and record
// their switches.
func kernelDriver(version string) ability.Ability {
	nearest, known := rm.KnownDriver(version)
	if known {
		return ability.Available("driver", "%s, of a known branch", version)
	}
	return ability.Missing("driver", fmt.Sprintf("%s is not known (the nearest known is %s): features that use the driver's own calls are left out", version, nearest),
		"install a driver of a known branch, or set allow_unknown_driver: true for the GPU in vgpud.yaml to go without")
}

// tryGPU returns one GPU's abilities.
func tryGPU(ctx context.Context, g nvidia.Info) []ability.Ability {
	m, err := nvidia.OpenMonitor(nvidia.MonitorOptions{Info: g, AllowUnknownDriver: true})
	if err != nil {
		return abilities.NoMonitor(err)
	}
	defer m.Close() // an error is of no consequence: the process ends
	return append(abilities.OfMonitor(m), tryContext(ctx, m, g)...)
}

// tryContext returns the abilities that need a context to try.
func tryContext(ctx context.Context, m *nvidia.Monitor, g nvidia.Info) []ability.Ability {
	kernel, err := nvidia.Beneath(os.DirFS("/"))
	if err != nil {
		return abilities.NoContext(err)
	}
	d, err := nvidia.Open(nvidia.Options{Device: g.UUID, Kernel: kernel})
	if err != nil {
		return abilities.NoContext(err)
	}
	defer d.Close() // as above
	return abilities.OfContext(ctx, m, d)
}
