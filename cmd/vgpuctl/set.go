package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newSet(o *options) *cobra.Command {
	var gpuAnswer answer
	gpu := &cobra.Command{
		Use:               "gpu NAME policy=POLICY",
		Short:             "Change the policy by which a GPU is shared, at once",
		Example:           "  vgpuctl set gpu gpu0 policy=dfq",
		Args:              exactly("NAME", "policy=POLICY"),
		ValidArgsFunction: completePolicy(o),
		RunE: func(c *cobra.Command, args []string) error {
			if err := gpuAnswer.check(); err != nil {
				return err
			}
			key, value, ok := strings.Cut(args[1], "=")
			if !ok || key != "policy" {
				return cli.Usagef("%q: want policy=NAME", args[1])
			}
			g, err := ask(c, o, func(d *api.Client, ctx context.Context) (api.GPU, error) {
				return d.UpdateGPU(ctx, args[0], api.GPUUpdate{Policy: &value})
			})
			if err != nil {
				return err
			}
			return gpuAnswer.gpu(c.OutOrStdout(), fmt.Sprintf("gpu %s: policy %s", g.Name, g.Policy), g)
		},
	}
	gpuAnswer.flags(gpu)
	return cli.NewGroup("set", "Change a guest or a GPU", newSetVM(o), gpu)
}
