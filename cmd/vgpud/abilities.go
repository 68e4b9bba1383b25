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

// tryAbilities finds out what the host's NVIDIA GPUs let vgpud do. It makes a context
// on each, and takes that off the GPU for a moment.
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

// libcuda is whether CUDA's driver library is here, and shows GPUs.
func libcuda(found *probeResult) ability.Ability {
	const name, do = "libcuda", "only for GPUs of kind nvidia: NVIDIA's driver, with its libraries, and the right to /dev/nvidia*"
	if found.Error != "" {
		return ability.Missing(name, found.Error, do)
	}
	if len(found.GPUs) == 0 {
		return ability.Missing(name, "it shows no GPU", do)
	}
	names := make([]string, len(found.GPUs))
	for i, g := range found.GPUs {
		names[i] = g.Properties.Name
	}
	return ability.Here(name, "CUDA %d.%d: %s", found.CUDA/1000, found.CUDA%1000/10, strings.Join(names, ", "))
}

// kernelDriver is whether the driver's own calls are known, by which contexts are
// controlled and their switches recorded.
func kernelDriver(version string) ability.Ability {
	nearest, known := rm.KnownDriver(version)
	if known {
		return ability.Here("driver", "%s, of a known branch", version)
	}
	return ability.Missing("driver", fmt.Sprintf("%s is not known, nearest is %s: what goes by its own calls is left out", version, nearest),
		"allow_unknown_driver: true of the GPU in vgpud.yaml goes on without; a driver of a known branch has all")
}

// tryGPU are one GPU's abilities.
func tryGPU(ctx context.Context, g nvidia.Info) []ability.Ability {
	m, err := nvidia.OpenMonitor(nvidia.MonitorOptions{Info: g, AllowUnknownDriver: true})
	if err != nil {
		return abilities.None(err)
	}
	defer m.Close() // the process ends, and with it what it holds
	return append(abilities.Watched(m), tryContext(ctx, m, g)...)
}

// tryContext are the abilities that take a context to try.
func tryContext(ctx context.Context, m *nvidia.Monitor, g nvidia.Info) []ability.Ability {
	kernel, err := nvidia.Beneath(os.DirFS("/"))
	if err != nil {
		return abilities.Uncontrolled(err)
	}
	d, err := nvidia.Open(nvidia.Options{Device: g.UUID, Kernel: kernel})
	if err != nil {
		return abilities.Uncontrolled(err)
	}
	defer d.Close() // likewise
	return abilities.Controlled(ctx, m, d)
}
