package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/api"
)

// askLimit bounds the daemon's answer.
const askLimit = 10 * time.Second

// options holds the flags of every command.
type options struct {
	socket string
}

func (o *options) client() *api.Client { return api.NewClient(o.socket) }

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "vgpuctl",
		Short: "Show and change how guests share the host's GPUs",
		Long: `vgpuctl shows how the guests share the host's GPUs, and changes it, by asking the daemon,
vgpud. Changes take effect at once.`,
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	socket := api.DefaultSocket
	if s := os.Getenv("VGPUD_SOCKET"); s != "" {
		socket = s
	}
	root.PersistentFlags().StringVar(&o.socket, "socket", socket, "the daemon's socket (environment VGPUD_SOCKET)")
	root.AddCommand(newGet(&o), newSet(&o), newDescribe(&o), newCreate(&o), newDelete(&o), newDefine(&o), newUndefine(), newAttach(&o), newDetach(&o),
		newCordon(&o), newUncordon(&o), newDrain(&o), newTop(&o), newEvents(&o), newUsage(&o), newPTX(), newDoctor(&o), newCheckConfig(), newVersion(&o), cli.NewMan(root, "1"))
	return root
}

// exactly requires one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return cli.Usagef("want %s, got %d arguments; see `%s --help`", strings.Join(names, " "), len(args), c.CommandPath())
	}
}

// atLeast requires an argument for each name; the last one may be repeated.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= len(names) {
			return nil
		}
		return exactly(names...)(c, args)
	}
}

// ask calls f with a connection to the daemon and a time limit.
func ask[T any](c *cobra.Command, o *options, f func(*api.Client, context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(c.Context(), askLimit)
	defer cancel()
	client := o.client()
	defer client.Close()
	return f(client, ctx)
}
