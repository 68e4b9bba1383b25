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

// completeVMs completes the names of guests.
func completeVMs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).VMs, vmName)
}

// completeGPUs completes the names of GPUs.
func completeGPUs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).GPUs, gpuName)
}

// completeNames completes the first argument by names that the daemon returns.
func completeNames[T any](o *options, all func(*api.Client, context.Context) ([]T, error), name func(T) string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		items, err := ask(c, o, all)
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
