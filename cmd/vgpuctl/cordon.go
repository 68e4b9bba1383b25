package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newCordon(o *options) *cobra.Command {
	return cli.NewGroup("cordon", "Keep new guests off a GPU", gpuSwitch(o, "Keep new guests off a GPU",
		`Keep new guests off a GPU, also after the daemon starts anew, until "vgpuctl uncordon".
Guests that it has go on.`, true))
}

func newUncordon(o *options) *cobra.Command {
	return cli.NewGroup("uncordon", "Let a GPU have guests again", gpuSwitch(o, "Let a GPU have guests again",
		`Let a GPU have guests again, and guests' contexts: this ends "vgpuctl cordon" and "vgpuctl
drain".`, false))
}

// gpuSwitch returns the command that cordons GPUs, or no longer does.
func gpuSwitch(o *options, short, long string, cordoned bool) *cobra.Command {
	var a answer
	c := &cobra.Command{
		Use: "gpu NAME", Short: short, Long: long,
		Args:              exactly("NAME"),
		ValidArgsFunction: completeGPUs(o),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.check(); err != nil {
				return err
			}
			g, err := updateGPU(c, o, args[0], api.GPUUpdate{Cordoned: &cordoned})
			if err != nil {
				return err
			}
			return a.gpu(c.OutOrStdout(), fmt.Sprintf("gpu %s: %s", g.Name, gpuStatus(g)), g)
		},
	}
	a.flags(c)
	return c
}

// updateGPU changes a GPU.
func updateGPU(c *cobra.Command, o *options, name string, u api.GPUUpdate) (api.GPU, error) {
	return ask(c, o, func(d *api.Client, ctx context.Context) (api.GPU, error) { return d.UpdateGPU(ctx, name, u) })
}
