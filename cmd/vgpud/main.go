// Command vgpud is the host's program: the daemon and the processes that it starts.
//
//	vgpud serve      the daemon
//	vgpud softgpu    a GPU in software
//	vgpud demo       sharing a GPU by weight, shown on this machine
//	vgpud vm, exec   a guest's virtual GPU and a guest context's executor
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"fmt"
	"os"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/sandbox"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	if err := sandbox.CloseOnExec(); err != nil {
		fmt.Fprintln(os.Stderr, "vgpud:", err)
		return 1
	}
	return cli.Run(newRoot())
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:     "vgpud",
		Short:   "Share the host's GPUs among its guests",
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	o.flags(root)
	root.AddCommand(newServe(&o), newSoftGPU(&o), newDemo(&o), newVM(&o), newExec(&o), newProbe(&o), newDemoGuest(&o), newDemoEvents(&o), newDemoPackets(&o), newDemoCard(&o), cli.NewMan(root, "8"))
	return root
}
