// Package checks is the command doctor of programs that stand between vgpud and an engine over many
// hosts: they examine something and this prints what they found, as a table with what to do below it.
package checks

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/ability"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
)

// Doctor describes a command doctor.
type Doctor struct {
	Short, Long string
	// Examine checks everything. It changes nothing.
	Examine func(ctx context.Context) []ability.Ability
	// NotReady is the command's result if something needed is missing.
	NotReady error
}

// NewCommand returns the command.
func NewCommand(d Doctor) *cobra.Command {
	format := output.Format{Kinds: []string{"table", "json"}}
	c := &cobra.Command{
		Use: "doctor", Short: d.Short, Long: d.Long, Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			all := d.Examine(c.Context())
			if err := print(c.OutOrStdout(), &format, all); err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(a ability.Ability) bool { return a.Needed && a.State != ability.Present }) {
				return d.NotReady
			}
			return nil
		},
	}
	format.OutputFlag(c, "table", "output: table, json")
	return c
}

// Needed returns a check without which guests can't have a GPU at all.
func Needed(a ability.Ability) ability.Ability {
	a.Needed = true
	return a
}

// OfGPU returns a check of one GPU.
func OfGPU(gpu string, a ability.Ability) ability.Ability {
	a.GPU = gpu
	return a
}

// print prints the table, and below it what to do.
func print(w io.Writer, f *output.Format, all []ability.Ability) error {
	if f.Kind == "json" {
		return output.JSON(w, ability.Report{Abilities: all})
	}
	var rows [][]string
	var advice strings.Builder
	for _, a := range all {
		state := string(a.State)
		if a.Needed && a.State == ability.Absent {
			state = "no, needed"
		}
		rows = append(rows, []string{a.Name, output.OrDash(a.GPU), state, a.What})
		if a.Do != "" {
			fmt.Fprintf(&advice, "  %s: %s\n", a.Name, a.Do)
		}
	}
	if err := f.Table(w, []string{"CHECK", "GPU", "HERE", "WHAT"}, rows); err != nil {
		return err
	}
	if advice.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nWhat to do:\n%s", &advice)
	return err
}
