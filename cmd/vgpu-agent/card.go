package main

import (
	"errors"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/eventarea"
	"vgpud/guestagent/driver"
)

func newCard(o *options) *cobra.Command {
	device := ""
	c := &cobra.Command{
		Use:   "card -- PROGRAM [ARGUMENT]...",
		Short: "Run a program that stands in for a network card, with a virtual GPU's event area",
		Long: `Run a program that launches event kernels of this VM, as a network card would: by storing
to the event area of a virtual GPU. The program gets the area's descriptor, whose number is in
` + eventarea.Variable + `, and nothing else: neither rings nor registers. It has no
doorbell registers to write, so where nobody polls, the host notices a launch within 20 ms.

The agent serves the device, and the program that registered the event kernels has it open
through the agent. That must reach the device by polling: with vfio-pci it has no
descriptor for the event area alone.`,
		Example: "  vgpu-agent card -- ./packets --queue 0",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("want PROGRAM, got 0 arguments; see `vgpu-agent card --help`")
			}
			area, err := driver.DialEventArea(driver.AgentOptions{Socket: o.socket, Address: device})
			if err != nil {
				return err
			}
			return errors.Join(eventarea.Run(c.Context(), area, args, c.OutOrStdout(), c.ErrOrStderr()), area.Close())
		},
	}
	c.Flags().StringVar(&device, "device", "", "PCI address of the virtual GPU, needed if there are several")
	if err := c.RegisterFlagCompletionFunc("device", completeDevices(o)); err != nil {
		panic(err) // the flag's name is wrong
	}
	return c
}
