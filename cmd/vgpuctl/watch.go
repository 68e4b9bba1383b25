package main

import (
	"context"
	"io"
	"slices"
	"time"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
)

// watch prints items, and then, as kubectl does, those that have changed, until ctx ends. Under the
// same headings, a row is printed when it differs from the item's last one. Items that are gone are
// printed once more, with state "gone".
func watch[T any](ctx context.Context, w io.Writer, f *output.Format, t *table[T], every time.Duration, fetch func() ([]T, error)) error {
	if every <= 0 {
		return cli.Usagef("interval %v: want more than 0", every)
	}
	p := watchPrinter[T]{w: w, f: f, t: t, table: output.Table{NoHeaders: f.NoHeaders}, rows: make(map[string][]string)}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		items, err := fetch()
		if err == nil {
			err = p.print(items)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// watchPrinter prints what has changed since it last printed.
type watchPrinter[T any] struct {
	w       io.Writer
	f       *output.Format
	t       *table[T]
	table   output.Table
	columns []column[T] // those of the first list, since the headings stay
	rows    map[string][]string
}

func (p *watchPrinter[T]) print(items []T) error {
	first := p.columns == nil
	if first {
		p.columns = p.t.columns(items)
	}
	heads, rows := p.t.rows(p.f, p.columns, items)
	var changed []T
	var changedRows [][]string
	present := make(map[string]bool)
	for i, it := range items {
		name := p.t.name(it)
		present[name] = true
		if slices.Equal(p.rows[name], rows[i]) {
			continue
		}
		p.rows[name] = rows[i]
		changed, changedRows = append(changed, it), append(changedRows, rows[i])
	}
	for name, row := range p.rows {
		if present[name] {
			continue
		}
		delete(p.rows, name)
		if i := slices.IndexFunc(p.columns, func(c column[T]) bool { return c.head == "STATE" || c.head == "STATUS" }); i >= 0 && i < len(row) {
			row[i] = "gone"
		}
		changedRows = append(changedRows, row)
	}
	if len(changedRows) == 0 && !first {
		return nil
	}
	switch p.f.Kind {
	case "table", "wide":
		return p.table.Write(p.w, heads, changedRows)
	case "csv":
		if !first {
			heads = nil
		}
		return output.CSV(p.w, heads, changedRows)
	case "name":
		return p.t.print(p.w, p.f, changed)
	}
	for _, it := range changed {
		if err := p.t.printOne(p.w, p.f, it); err != nil {
			return err
		}
	}
	return nil
}
