package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/internal/version"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
)

// options holds the flags of every command.
type options struct {
	socket string
	root   string
	access string
}

// ways lists the values of --access.
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
		Long: `vgpu-agent is a VM's daemon for its virtual GPUs: it binds them to vfio-pci, which delivers
their interrupts, gives a group access to them, checks that they compute, and shares each
among several programs. Without a command it serves.`,
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    serve.RunE,
	}
	f := root.PersistentFlags()
	socket := allot.DefaultSocket
	if s := os.Getenv("VGPU_AGENT_SOCKET"); s != "" {
		socket = s
	}
	f.StringVar(&o.socket, "socket", socket, "the agent's socket (environment VGPU_AGENT_SOCKET)")
	f.StringVar(&o.root, "root", "", "a directory to use as the root of /sys and /dev")
	f.StringVar(&o.access, "access", "any", "how to reach devices: "+strings.Join(wayNames(), ", "))
	cli.CompleteFlag(root, "access", wayNames()...)
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, newList(&o), newStatus(&o), newCheck(&o), newCard(&o), newDoctor(&o), cli.NewMan(root, "8"))
	return root
}

// newFormat returns the format of a command's results.
func newFormat() output.Format { return output.Format{Kinds: []string{"table", "json"}} }

// completeDevices completes PCI addresses.
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

// completeDevicesOrFiles completes PCI addresses, and files where there is no device.
func completeDevicesOrFiles(o *options) cobra.CompletionFunc {
	devices := completeDevices(o)
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		names, _ := devices(c, args, prefix)
		return names, cobra.ShellCompDirectiveDefault
	}
}
