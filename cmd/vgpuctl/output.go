package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// formats are the values of --output.
var formats = []string{"table", "wide", "json", "yaml", "csv", "name", output.KindPath}

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
	return printAnswer(w, a, line, vmTable, v)
}

// gpu shows a GPU.
func (a *answer) gpu(w io.Writer, line string, g api.GPU) error {
	return printAnswer(w, a, line, gpuTable, g)
}

func printAnswer[T any](w io.Writer, a *answer, line string, t table[T], item T) error {
	if a.Kind == "" {
		_, err := fmt.Fprintln(w, line)
		return err
	}
	return t.printOne(w, &a.Format, item)
}

// table describes how items of a kind are printed.
type table[T any] struct {
	// columns returns the columns for these items.
	columns func([]T) []column[T]
	name    func(T) string
	// shown returns what of an item is for programs; nil returns the item.
	shown func(T) T
}

// printOne writes one item; as JSON it is an object.
func (t *table[T]) printOne(w io.Writer, f *output.Format, item T) error {
	if t.shown != nil {
		item = t.shown(item)
	}
	if done, err := f.Encode(w, item); done {
		return err
	}
	return t.print(w, f, []T{item})
}

// print writes items; as JSON they are an array.
func (t *table[T]) print(w io.Writer, f *output.Format, items []T) error {
	all := make([]T, len(items)) // not null
	for i, it := range items {
		all[i] = it
		if t.shown != nil {
			all[i] = t.shown(it)
		}
	}
	if done, err := f.Encode(w, all); done {
		return err
	}
	if f.Kind == "name" {
		for _, it := range all {
			if _, err := fmt.Fprintln(w, t.name(it)); err != nil {
				return err
			}
		}
		return nil
	}
	heads, rows := t.rows(f, t.columns(items), items)
	if f.Kind == "csv" {
		return output.CSV(w, heads, rows)
	}
	return f.Table(w, heads, rows)
}

// rows returns the headings, nil with --no-headers in CSV, and a row for each item.
func (t *table[T]) rows(f *output.Format, columns []column[T], items []T) (heads []string, rows [][]string) {
	csv := f.Kind == "csv"
	if f.Kind != "wide" && !csv {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide })
	}
	if !csv {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.unused != nil && c.unused(items) })
	}
	for _, c := range columns {
		head := c.head
		if csv {
			head = strings.ToLower(strings.ReplaceAll(head, "-", "_"))
		}
		heads = append(heads, head)
	}
	if csv && f.NoHeaders {
		heads = nil
	}
	for _, it := range items {
		row := make([]string, len(columns))
		for i, c := range columns {
			if row[i] = c.value(it); csv && c.plain != nil {
				row[i] = c.plain(it)
			}
		}
		rows = append(rows, row)
	}
	return heads, rows
}
