package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newDelete(o *options) *cobra.Command {
	var missingOK, force bool
	vm := &cobra.Command{
		Use:   "vm NAME...",
		Short: "Delete guests' virtual GPUs",
		Long: `Delete guests' virtual GPUs. While the VMM of one is connected this needs --force, since
the VM may not survive: QEMU 11.1 ends if its device's process ends during an access.
"vgpuctl detach" unplugs a virtual GPU that was attached. If one can't be deleted, the
others are.`,
		Example:           "  vgpuctl delete vm web1 web2",
		Args:              atLeast("NAME..."),
		ValidArgsFunction: completeSeveral(o, (*api.Client).VMs, vmName),
		RunE: func(c *cobra.Command, args []string) error {
			var failed error
			for _, name := range args {
				_, err := ask(c, o, func(d *api.Client, ctx context.Context) (struct{}, error) {
					if force {
						return struct{}{}, d.ForceDeleteVM(ctx, name)
					}
					return struct{}{}, d.DeleteVM(ctx, name)
				})
				done := "deleted"
				if missingOK && errors.Is(err, api.ErrNotFound) {
					done, err = "there is none", nil
				}
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "vm %s: %s\n", name, done); err != nil {
					return err
				}
			}
			return failed
		},
	}
	vm.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed if there is no such guest")
	vm.Flags().BoolVar(&force, "force", false, "delete even if a VMM is connected, which may not survive")
	return cli.NewGroup("delete", "Delete guests' virtual GPUs", vm)
}
