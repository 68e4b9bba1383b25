package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

// format is how a list is printed.
type format struct {
	kind      string
	noHeaders bool
}

var formats = []string{"table", "wide", "json", "yaml", "name"}

func (f *format) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.kind, "output", "o", "table", "output: "+strings.Join(formats, ", "))
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "print no heads over the columns")
	completeFormats(c)
}

// completeFormats offers the values of --output, which was just defined, to the
// shell.
func completeFormats(c *cobra.Command) {
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

func (f *format) check() error {
	for _, k := range formats {
		if f.kind == k {
			return nil
		}
	}
	return cli.Usagef("output %q: want one of %s", f.kind, strings.Join(formats, ", "))
}

// answer is how a command that changes something says what came of it: by a line of
// its own, or, where a format is asked for, as `get` shows what was changed.
type answer struct{ format }

func (a *answer) flags(c *cobra.Command) {
	c.Flags().StringVarP(&a.kind, "output", "o", "", "show what came of it in a `format`: "+strings.Join(formats, ", "))
	completeFormats(c)
}

func (a *answer) check() error {
	if a.kind == "" {
		return nil
	}
	return a.format.check()
}

// vm shows a guest.
func (a *answer) vm(w io.Writer, line string, v api.VM) error {
	if a.kind == "" {
		_, err := fmt.Fprintln(w, line)
		return err
	}
	return print(w, &a.format, vmColumnsOf([]api.VM{v}), func(v api.VM) string { return v.Name }, []api.VM{v})
}

// gpu shows a GPU.
func (a *answer) gpu(w io.Writer, line string, g api.GPU) error {
	if a.kind == "" {
		_, err := fmt.Fprintln(w, line)
		return err
	}
	return print(w, &a.format, gpuColumnsOf([]api.GPU{g}), func(g api.GPU) string { return g.Name }, []api.GPU{g})
}

// column is one column of a table.
type column[T any] struct {
	head string
	wide bool // only with -o wide
	cell func(T) string
}

// print writes items in the format.
func print[T any](w io.Writer, f *format, columns []column[T], name func(T) string, items []T) error {
	switch f.kind {
	case "json":
		if items == nil {
			items = []T{}
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(items)
	case "yaml":
		return printYAML(w, items)
	case "name":
		for _, it := range items {
			if _, err := fmt.Fprintln(w, name(it)); err != nil {
				return err
			}
		}
		return nil
	}
	return table(w, f, columns, items)
}

func table[T any](w io.Writer, f *format, columns []column[T], items []T) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	row := func(cell func(column[T]) string) error {
		var cells []string
		for _, c := range columns {
			if !c.wide || f.kind == "wide" {
				cells = append(cells, cell(c))
			}
		}
		_, err := fmt.Fprintln(t, strings.Join(cells, "\t"))
		return err
	}
	if !f.noHeaders {
		if err := row(func(c column[T]) string { return c.head }); err != nil {
			return err
		}
	}
	for _, it := range items {
		if err := row(func(c column[T]) string { return c.cell(it) }); err != nil {
			return err
		}
	}
	return t.Flush()
}

// printYAML has the names of the fields that JSON has.
func printYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	var plain any
	if err := yaml.Unmarshal(b, &plain); err != nil { // JSON is YAML
		return fmt.Errorf("encode: %w", err)
	}
	b, err = yaml.Marshal(plain)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = w.Write(b)
	return err
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// part is a part of the GPU's time as it was asked for; 0 is none.
func part(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%g%%", math.Round(x*1e11)/1e9)
}

func seconds(x float64) string { return fmt.Sprintf("%.2f", x) }

func number(x float64) string { return fmt.Sprintf("%g", x) }

func count[T int | uint64](n T) string { return fmt.Sprint(n) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
