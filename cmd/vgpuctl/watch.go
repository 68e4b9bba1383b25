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
	p := watchPrinter[T]{streamPrinter: newStreamPrinter(w, f, t), rows: make(map[string][]string)}
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
	streamPrinter[T]
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
	return p.streamPrinter.print(heads, changedRows, changed)
}

// streamPrinter prints items as they come: a row for each, under headings that are printed once, or an
// object for each.
type streamPrinter[T any] struct {
	w     io.Writer
	f     *output.Format
	t     *table[T]
	table output.Table
	begun bool
}

func newStreamPrinter[T any](w io.Writer, f *output.Format, t *table[T]) streamPrinter[T] {
	return streamPrinter[T]{w: w, f: f, t: t, table: output.Table{NoHeaders: f.NoHeaders}}
}

// print prints some items and their rows. There may be more rows than items.
func (p *streamPrinter[T]) print(heads []string, rows [][]string, items []T) error {
	first := !p.begun
	p.begun = true
	switch p.f.Kind {
	case "table", "wide":
		return p.table.Write(p.w, heads, rows)
	case "csv":
		if !first {
			heads = nil
		}
		return output.CSV(p.w, heads, rows)
	case "name":
		return p.t.print(p.w, p.f, items)
	}
	for _, it := range items {
		if err := p.t.printOne(p.w, p.f, it); err != nil {
			return err
		}
	}
	return nil
}
