package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
)

// format is how results are printed.
type format struct {
	kind      string
	noHeaders bool
}

var formats = []string{"table", "json"}

func (f *format) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.kind, "output", "o", "table", "output: "+strings.Join(formats, ", "))
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "print no heads over the columns")
	complete(c, "output", formats)
}

func (f *format) check() error {
	if !slices.Contains(formats, f.kind) {
		return cli.Usagef("output %q: want one of %s", f.kind, strings.Join(formats, ", "))
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable writes rows of columns under their heads.
func printTable(w io.Writer, f *format, heads []string, rows [][]string) error {
	if !f.noHeaders {
		rows = slices.Insert(rows, 0, heads)
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// orDash stands for nothing.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// mebibytes is a size.
func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
