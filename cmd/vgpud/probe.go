package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/gpu/nvidia"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/rm"
)

// probeResult is the output of `vgpud probe`: the GPUs as the CUDA driver lists them, or why it
// can't.
type probeResult struct {
	GPUs []nvidia.Info `json:"gpus"`
	// Driver is the kernel driver's version, or "" without one.
	Driver string `json:"driver"`
	// CUDA is the version that the driver supports, as returned by cuDriverGetVersion.
	CUDA  int    `json:"cuda"`
	Error string `json:"error"`
}

func newProbe(*options) *cobra.Command {
	var try bool
	c := &cobra.Command{
		Use:   "probe",
		Short: "List the host's NVIDIA GPUs",
		Long: `List the host's NVIDIA GPUs, as JSON. The daemon starts it instead of loading the CUDA
driver itself, whose failures then end only this process. With --abilities it tries what
the GPUs let vgpud do, for "vgpuctl doctor".`,
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if try {
				return json.NewEncoder(c.OutOrStdout()).Encode(tryAbilities(c.Context()))
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(probe())
		},
	}
	c.Flags().BoolVar(&try, "abilities", false, "try what the GPUs let vgpud do")
	return c
}

// probe lists the GPUs without creating a context.
func probe() probeResult {
	r := probeResult{GPUs: []nvidia.Info{}}
	// Without the kernel driver, CUDA's error below says what is wrong.
	r.Driver, _ = rm.DriverVersion(os.DirFS("/"))
	fail := func(err error) probeResult {
		r.Error = err.Error()
		return r
	}
	l, err := cuda.Open()
	if err != nil {
		return fail(err)
	}
	if r.CUDA, err = l.DriverGetVersion(); err != nil {
		return fail(fmt.Errorf("read the CUDA driver's version: %w", err))
	}
	if err := l.Init(); err != nil {
		return fail(fmt.Errorf("start the CUDA driver: %w: is the NVIDIA driver loaded, and may this process open its devices?", err))
	}
	all, err := nvidia.List(l)
	if err != nil {
		return fail(err)
	}
	r.GPUs = all
	return r
}
