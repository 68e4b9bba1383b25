package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// formats are the values of --output.
var formats = []string{"table", "wide", "json", "yaml", "name"}

func newFormat() output.Format { return output.Format{Kinds: formats} }

// answer prints the result of a command that changes something: as one line, or, with --output, as
// `get` shows the changed item.
type answer struct{ output.Format }

func (a *answer) flags(c *cobra.Command) {
	a.Kinds = formats
	a.OutputFlag(c, "", "show the result in a `format`: "+strings.Join(formats, ", "))
}

func (a *answer) check() error {
	if a.Kind == "" {
		return nil
	}
	return a.Check()
}

// vm shows a guest.
func (a *answer) vm(w io.Writer, line string, v api.VM) error {
	return printAnswer(w, a, line, vmColumnsOf, vmName, v)
}

// gpu shows a GPU.
func (a *answer) gpu(w io.Writer, line string, g api.GPU) error {
	return printAnswer(w, a, line, gpuColumnsOf, gpuName, g)
}

func printAnswer[T any](w io.Writer, a *answer, line string, columns func([]T) []column[T], name func(T) string, item T) error {
	if a.Kind == "" {
		_, err := fmt.Fprintln(w, line)
		return err
	}
	items := []T{item}
	return print(w, &a.Format, columns(items), name, items)
}

func vmName(v api.VM) string   { return v.Name }
func gpuName(g api.GPU) string { return g.Name }

// column is one column of a table.
type column[T any] struct {
	head  string
	wide  bool // only with -o wide
	value func(T) string
}

// print writes items in the format.
func print[T any](w io.Writer, f *output.Format, columns []column[T], name func(T) string, items []T) error {
	switch f.Kind {
	case "json":
		if items == nil {
			items = []T{} // not null
		}
		return output.JSON(w, items)
	case "yaml":
		return output.YAML(w, items)
	case "name":
		for _, it := range items {
			if _, err := fmt.Fprintln(w, name(it)); err != nil {
				return err
			}
		}
		return nil
	}
	if f.Kind != "wide" {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide })
	}
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.head
	}
	rows := make([][]string, len(items))
	for i, it := range items {
		for _, c := range columns {
			rows[i] = append(rows[i], c.value(it))
		}
	}
	return f.Table(w, heads, rows)
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// ratio formats a configured part of the GPU's time; 0 means none.
func ratio(x float64) string {
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
