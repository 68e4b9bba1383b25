// Command vgpu-placement tells OpenStack's Placement what the GPUs of this host have to give, so that
// Nova's scheduler, as it is, sends instances to hosts with room on a GPU.
//
//	vgpu-placement serve      the agent, a service
//	vgpu-placement doctor     what is right and wrong between this host and Placement
//	vgpu-placement withdraw   takes this host's GPUs out of Placement
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/api"
	"vgpud/mediator/nova/placement"
)

func main() { os.Exit(cli.Run(newRoot())) }

// options holds the flags of every command.
type options struct{ config string }

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "vgpu-placement",
		Short: "Tell OpenStack's Placement what this host's GPUs have to give",
		Long: `vgpu-placement keeps one resource provider for each of this host's GPUs in OpenStack's
Placement, under Nova's compute node: CUSTOM_VGPUD_SHARE, 100 a GPU, and
CUSTOM_VGPUD_MEMORY_MIB. The part of guests that Nova did not place is reserved, and so is
everything of a GPU that is sick, cordoned or being drained.`,
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().StringVarP(&o.config, "config", "c", placement.DefaultConfig, "the configuration `file`")
	root.AddCommand(newServe(&o), newDoctor(&o), newWithdraw(&o), cli.NewMan(root, "8"))
	return root
}

// connection is what every command needs.
type connection struct {
	config    placement.Config
	placement *placement.Client
	daemon    *api.Client
}

// connect reads the configuration. Call close.
func (o *options) connect() (*connection, error) {
	config, err := placement.ReadConfig(o.config)
	if err != nil {
		return nil, err
	}
	client, err := placement.New(config)
	if err != nil {
		return nil, err
	}
	return &connection{config, client, api.NewClientBy(config.Socket, "`socket` in "+o.config)}, nil
}

func (c *connection) close() {
	c.placement.Close()
	c.daemon.Close()
}
