package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

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
	root.AddCommand(newGet(&o), newSet(&o), newCreate(&o), newDelete(&o), newDefine(&o), newUndefine(), newAttach(&o), newDetach(&o), newTop(&o), newPTX(), newMan(root))
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
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := asking(c)
		defer cancel()
		vms, err := o.client().VMs(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := make([]string, len(vms))
		for i := range vms {
			names[i] = vms[i].Name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// newMan writes the manual pages, from the same tree as the help.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Args:   exactly("DIRECTORY"),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := doc.GenManHeader{Section: "1", Source: "vgpud", Manual: "vgpud", Date: &time.Time{}}
			return doc.GenManTree(root, &header, args[0])
		},
	}
}
