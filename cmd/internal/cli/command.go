package cli

import "github.com/spf13/cobra"

// NewGroup returns a command that only has subcommands, and shows its help by itself.
func NewGroup(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(subcommands...)
	return c
}

// CompleteFlag makes the shell complete the values of a flag, which must be defined.
func CompleteFlag(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
