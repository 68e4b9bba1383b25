package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

// askLimit bounds how long the daemon may take to answer.
const askLimit = 10 * time.Second

// options are the flags of every command.
type options struct {
	socket string
}

func (o *options) client() *api.Client { return api.NewClient(o.socket) }

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "vgpuctl",
		Short: "Show and change how guests share the host's GPUs",
		Long: `vgpuctl asks the daemon, vgpud, how the guests share the host's GPUs, and
changes it: weights take effect at once.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	socket := api.DefaultSocket
	if s := os.Getenv("VGPUD_SOCKET"); s != "" {
		socket = s
	}
	root.PersistentFlags().StringVar(&o.socket, "socket", socket, "the daemon's socket (environment VGPUD_SOCKET)")
	root.AddCommand(newGet(&o), newSet(&o), newCreate(&o), newDelete(&o), newDefine(&o), newUndefine(), newAttach(&o), newDetach(&o), newTop(&o), newPTX(), newDoctor(&o), cli.NewMan(root, "1"))
	return root
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return cli.Usagef("want %s, got %d words; `%s --help` says more", strings.Join(names, " "), len(args), c.CommandPath())
	}
}

// atLeast wants an argument for each name, and the last one may come again.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= len(names) {
			return nil
		}
		return exactly(names...)(c, args)
	}
}

// asking bounds a question in time.
func asking(c *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), askLimit)
}

// completeVMs offers the names of guests to the shell.
func completeVMs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).VMs, func(v api.VM) string { return v.Name })
}

// completeGPUs offers the names of GPUs to the shell.
func completeGPUs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).GPUs, func(g api.GPU) string { return g.Name })
}

// completeNames offers the names of what the daemon knows, as the first word.
func completeNames[T any](o *options, all func(*api.Client, context.Context) ([]T, error), name func(T) string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := asking(c)
		defer cancel()
		client := o.client()
		defer client.Close()
		items, err := all(client, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := make([]string, len(items))
		for i := range items {
			names[i] = name(items[i])
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
