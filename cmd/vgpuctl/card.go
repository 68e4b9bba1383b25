package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/eventarea"
	"vgpud/mediator/api"
)

func newCard(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "card VM -- PROGRAM [ARGUMENT]...",
		Short: "Run a program that stands in for a network card, with a guest's event area",
		Long: `Run a program that launches a guest's event kernels, as a network card would: by storing
to the guest's event area. The program gets the area's descriptor, whose number is in
` + eventarea.Variable + `, and nothing else of the guest's: neither rings nor windows. See
docs/device.md, "Event kernels", for what is in it.

It needs the rights to open the descriptors of the guest's process: those of root.`,
		Example:           "  vgpuctl card web1 -- ./packets --queue 0",
		Args:              atLeast("VM", "PROGRAM"),
		ValidArgsFunction: completeCard(o),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := ask(c, o, func(client *api.Client, ctx context.Context) (api.VM, error) { return client.VM(ctx, args[0]) })
			if err != nil {
				return err
			}
			return runCard(c, v, args[1:])
		},
	}
	return c
}

// completeCard completes the guest's name, and then files.
func completeCard(o *options) cobra.CompletionFunc {
	vms := completeVMs(o)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return vms(c, args, word)
	}
}

// runCard runs a program with the event area of a guest.
func runCard(c *cobra.Command, v api.VM, argv []string) (err error) {
	area, err := eventarea.Open(v.PID)
	if err != nil {
		return fmt.Errorf("%s: %w", v.Name, err)
	}
	defer func() { err = errors.Join(err, area.Close()) }()
	return eventarea.Run(c.Context(), area, argv, c.OutOrStdout(), c.ErrOrStderr())
}
