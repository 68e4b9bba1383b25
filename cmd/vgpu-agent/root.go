package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
)

// options are the flags of every command.
type options struct {
	socket string
	root   string
	access string
}

// ways are the ways to a device that can be asked for.
var ways = []driver.Access{driver.AccessAny, driver.AccessVFIO, driver.AccessPolling}

func wayNames() []string {
	names := make([]string, len(ways))
	for i, w := range ways {
		names[i] = w.String()
	}
	return names
}

func (o *options) pci() (driver.PCI, error) {
	i := slices.Index(wayNames(), o.access)
	if i < 0 {
		return driver.PCI{}, cli.Usagef("access %q: want one of %s", o.access, strings.Join(wayNames(), ", "))
	}
	return driver.PCI{Root: o.root, Access: ways[i]}, nil
}

func newRoot() *cobra.Command {
	var o options
	serve := newServe(&o)
	root := &cobra.Command{
		Use:   "vgpu-agent",
		Short: "Prepare, check and share the virtual GPUs of this VM",
		Long: `vgpu-agent is a VM's daemon for its virtual GPUs: it gives them to vfio-pci,
which has their interrupts, opens them to a group, checks that they compute, and
shares one among several programs. Without a command it serves.`,
		Args: cli.NoArgs,
		RunE: serve.RunE,
	}
	f := root.PersistentFlags()
	socket := allot.DefaultSocket
	if s := os.Getenv("VGPU_AGENT_SOCKET"); s != "" {
		socket = s
	}
	f.StringVar(&o.socket, "socket", socket, "the agent's socket (environment VGPU_AGENT_SOCKET)")
	f.StringVar(&o.root, "root", "", "a directory to take for the file system's root, of which /sys and /dev are used")
	f.StringVar(&o.access, "access", "any", "how to reach devices: "+strings.Join(wayNames(), ", "))
	complete(root, "access", wayNames())
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, newList(&o), newStatus(&o), newCheck(&o), cli.NewMan(root, "8"))
	return root
}

// complete offers the values of a flag, which was just defined, to the shell.
func complete(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// completeDevices offers PCI addresses to the shell.
func completeDevices(o *options) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		p, err := o.pci()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := agent.List(p)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Address
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
