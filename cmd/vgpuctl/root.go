package main

import (
	"context"
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
	*connection
	// local makes the command one that works on this host alone.
	local bool
}

// here returns the options of a command that works on this host alone.
func (o *options) here() *options { return &options{connection: o.connection, local: true} }

// client returns a client of the daemon that the command asks. Call its Close.
func (o *options) client(c *cobra.Command) (*api.Client, error) {
	if !o.local {
		return o.connection.client()
	}
	if err := o.checkLocal(c); err != nil {
		return nil, err
	}
	return o.localClient(), nil
}

func newRoot() *cobra.Command {
	o := options{connection: new(connection)}
	root := &cobra.Command{
		Use:   "vgpuctl",
		Short: "Show and change how guests share the host's GPUs",
		Long: `vgpuctl shows how the guests share the host's GPUs, and changes it, by asking the daemon,
vgpud. Changes take effect at once.

The daemon of this host is asked over its socket, that of another one with --host, over
TLS and by a certificate of yours. ` + clientConfigHelp,
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	o.add(root)
	root.AddCommand(newGet(&o), newSet(&o), newDescribe(&o), newCreate(&o), newDelete(&o), newDefine(&o), newUndefine(&o), newAttach(&o), newDetach(&o),
		newCordon(&o), newUncordon(&o), newDrain(&o), newTop(&o), newCard(&o), newEvents(&o), newUsage(&o), newFleet(&o), newPTX(), newDoctor(&o), newCheckConfig(), newVersion(&o), cli.NewMan(root, "1"))
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
	client, err := o.client(c)
	if err != nil {
		return *new(T), err
	}
	defer client.Close()
	return f(client, ctx)
}
