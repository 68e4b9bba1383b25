package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/api"
)

// versions are the versions of this program and of the daemon.
type versions struct {
	Client string `json:"client"`
	Daemon string `json:"daemon,omitempty"`
}

func newVersion(o *options) *cobra.Command {
	f := output.Format{Kinds: []string{"table", "json", "yaml", output.KindPath}}
	var clientOnly bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of vgpuctl and of the daemon",
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			v := versions{Client: version.String()}
			var unreachable error
			if !clientOnly {
				var h api.Health
				h, unreachable = ask(c, o, (*api.Client).Health)
				v.Daemon = h.Version
			}
			done, err := f.Encode(c.OutOrStdout(), v)
			if !done {
				_, err = fmt.Fprintf(c.OutOrStdout(), "vgpuctl %s\n", v.Client)
				if err == nil && v.Daemon != "" {
					_, err = fmt.Fprintf(c.OutOrStdout(), "vgpud   %s\n", v.Daemon)
				}
			}
			return errors.Join(err, unreachable)
		},
	}
	f.OutputFlag(c, "table", "output: table, json, yaml, jsonpath=TEMPLATE")
	c.Flags().BoolVar(&clientOnly, "client", false, "do not ask the daemon")
	return c
}
