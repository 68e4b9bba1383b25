package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/daemon"
)

// defaultConfig is the configuration that the daemon reads unless told otherwise.
const defaultConfig = "/etc/vgpud/vgpud.yaml"

func newCheckConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Check a configuration of the daemon, without the daemon",
		Long: `Check a configuration of the daemon (default ` + defaultConfig + `) as the daemon would
read it, and print each error with its line, what is wrong, and what would be right. The
exit status is 1 if there is one. Whether sockets and GPUs are there is not checked.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("want at most one FILE, got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			file := defaultConfig
			if len(args) == 1 {
				file = args[0]
			}
			config, err := daemon.ReadConfig(file)
			if err != nil {
				return err
			}
			plural := "s"
			if len(config.GPUs) == 1 {
				plural = ""
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: good, with %d GPU%s\n", file, len(config.GPUs), plural)
			return err
		},
	}
}
