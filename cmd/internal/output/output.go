// Package output prints the results of commands, as tables for people and as JSON or YAML for
// programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"vgpud/cmd/internal/cli"
)

// Format is the choice of the flags --output and --no-headers.
type Format struct {
	Kind      string
	NoHeaders bool
	Kinds     []string // the possible values of --output; the first is the default
}

// Flags adds both flags.
func (f *Format) Flags(c *cobra.Command) {
	f.OutputFlag(c, f.Kinds[0], "output: "+strings.Join(f.Kinds, ", "))
	c.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "print no column headings")
}

// OutputFlag adds --output alone.
func (f *Format) OutputFlag(c *cobra.Command, value, usage string) {
	c.Flags().StringVarP(&f.Kind, "output", "o", value, usage)
	cli.CompleteFlag(c, "output", f.Kinds...)
}

// Check returns a usage error if the value of --output is not one of Kinds.
func (f *Format) Check() error {
	if !slices.Contains(f.Kinds, f.Kind) {
		return cli.Usagef("output %q: want one of %s", f.Kind, strings.Join(f.Kinds, ", "))
	}
	return nil
}

// Table writes rows under their headings.
func (f *Format) Table(w io.Writer, heads []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	if !f.NoHeaders {
		rows = slices.Insert(rows, 0, heads)
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// JSON writes v, indented.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// YAML writes v with the field names of its JSON.
func YAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	var plain any
	if err := yaml.Unmarshal(b, &plain); err != nil { // JSON is YAML
		return fmt.Errorf("encode: %w", err)
	}
	if b, err = yaml.Marshal(plain); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = w.Write(b)
	return err
}

// OrDash returns s, or "-" for an empty s.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
