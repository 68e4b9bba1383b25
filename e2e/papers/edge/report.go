package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"vgpud/e2e/papers/goals"
	"vgpud/e2e/papers/plot"
)

// report is all results.
type report struct {
	Rows    []goals.Row   `json:"rows"`
	Figures []plot.Figure `json:"figures"`
	// Tables are figures that are not drawn.
	Tables []plot.Figure `json:"tables"`
}

// everything runs all experiments.
func everything(x extent) (*report, error) {
	l, err := newLab(x)
	if err != nil {
		return nil, err
	}
	res := &results{lab: l}
	if res.flushing, err = l.flush(); err != nil {
		return nil, err
	}
	if res.waits, err = l.wait(); err != nil {
		return nil, err
	}
	if res.beside, err = l.beside(); err != nil {
		return nil, err
	}
	r := &report{Rows: res.rows(), Figures: res.figures(), Tables: res.tables()}
	for _, fs := range [][]plot.Figure{r.Figures, r.Tables} {
		for i := range fs {
			for _, row := range fs[i].Rows {
				for j := range row.Values {
					row.Values[j] = goals.Round(row.Values[j])
				}
			}
		}
	}
	return r, nil
}

// print prints the report.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s", r.rowTable(), plot.Texts(r.Figures, r.Tables))
}

// rowTable is the rows as a table.
func (r *report) rowTable() string {
	var b strings.Builder
	b.WriteString("| id | value | goal | met | paper | beside |\n|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		met, value := "yes", "not measured"
		switch {
		case row.Value == nil:
			met = "-"
		case row.Missed():
			met = "**no**"
			fallthrough
		default:
			value = fmt.Sprintf("%.2f %s", *row.Value, row.Unit)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", row.ID, value, row.Goal, met, row.Paper, row.Beside)
	}
	return b.String()
}

// write writes the report to a directory.
func (r *report) write(dir string) error {
	if err := goals.Write(filepath.Join(dir, "edge.json"), r); err != nil {
		return err
	}
	for name, content := range map[string]string{"edge.svg": plot.Page(r.Figures), "edge.md": r.markdown()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// markdown returns the page.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## Goals\n\n")
	b.WriteString(r.rowTable())
	b.WriteString(goals.Misses(r.Rows))
	b.WriteString("\n## Figures and tables\n\n![figures 1, 11, 12 and 13](edge.svg)\n\n```\n")
	b.WriteString(plot.Texts(r.Figures, r.Tables))
	b.WriteString("```\n")
	return b.String()
}
