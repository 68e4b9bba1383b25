// Package output prints the results of commands: as tables for people, and as JSON, YAML, CSV or by
// a template for programs.
package output

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"vgpud/cmd/internal/cli"
)

// KindPath is the kind of output that a template follows: jsonpath={.name}.
const KindPath = "jsonpath"

// Format is the choice of the flags --output and --no-headers.
type Format struct {
	Kind      string
	NoHeaders bool
	Kinds     []string // the possible values of --output; the first is the default

	path *Path // for KindPath, once checked
}

// Flags adds both flags.
func (f *Format) Flags(c *cobra.Command) {
	f.OutputFlag(c, f.Kinds[0], "output: "+f.names())
	c.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "print no column headings")
}

// OutputFlag adds --output alone.
func (f *Format) OutputFlag(c *cobra.Command, value, usage string) {
	c.Flags().StringVarP(&f.Kind, "output", "o", value, usage)
	values := slices.Clone(f.Kinds)
	if i := slices.Index(values, KindPath); i >= 0 {
		values[i] += "="
	}
	cli.CompleteFlag(c, "output", values...)
}

// names lists the values of --output for people.
func (f *Format) names() string {
	return strings.ReplaceAll(strings.Join(f.Kinds, ", "), KindPath, KindPath+"=TEMPLATE")
}

// Check returns a usage error if the value of --output is not one of Kinds.
func (f *Format) Check() (err error) {
	if template, ok := strings.CutPrefix(f.Kind, KindPath+"="); ok && slices.Contains(f.Kinds, KindPath) {
		if f.path, err = ParsePath(template); err != nil {
			return cli.UsageError{Err: err}
		}
		f.Kind = KindPath
	}
	if !slices.Contains(f.Kinds, f.Kind) || f.Kind == KindPath && f.path == nil {
		return cli.Usagef("output %q: want one of %s", f.Kind, f.names())
	}
	return nil
}

// Encode writes v as JSON, as YAML or by the template, and reports whether the format is one of
// these.
func (f *Format) Encode(w io.Writer, v any) (bool, error) {
	switch f.Kind {
	case "json":
		return true, JSON(w, v)
	case "yaml":
		return true, YAML(w, v)
	case KindPath:
		return true, f.path.Print(w, v)
	}
	return false, nil
}

// Table writes rows under their headings.
func (f *Format) Table(w io.Writer, heads []string, rows [][]string) error {
	t := Table{NoHeaders: f.NoHeaders}
	return t.Write(w, heads, rows)
}

// Table writes rows in columns that are as wide as the widest cell so far. Its zero value writes
// the headings above the first rows.
type Table struct {
	NoHeaders bool
	widths    []int
}

// gap is the space between two columns.
const gap = 3

// Write writes rows; the headings come first, once.
func (t *Table) Write(w io.Writer, heads []string, rows [][]string) error {
	rows = slices.Clone(rows)
	if t.widths == nil {
		t.widths = make([]int, len(heads))
		if !t.NoHeaders {
			rows = slices.Insert(rows, 0, heads)
		}
	}
	for i, r := range rows {
		rows[i] = make([]string, len(r))
		for j, cell := range r {
			rows[i][j] = Printable(cell)
			if j < len(t.widths) {
				t.widths[j] = max(t.widths[j], len([]rune(rows[i][j])))
			}
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for j, cell := range r {
			b.WriteString(cell)
			if j < len(r)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[j]-len([]rune(cell))+gap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Printable returns s with what a terminal could take as a command, or would not show, escaped:
// names may be a guest's.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// CSV writes rows under their headings, as RFC 4180 has it. Texts that a spreadsheet would take as
// a formula begin with an apostrophe.
func CSV(w io.Writer, heads []string, rows [][]string) error {
	c := csv.NewWriter(w)
	c.UseCRLF = false
	if heads != nil {
		rows = slices.Insert(slices.Clone(rows), 0, heads)
	}
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = Printable(cell)
			if _, err := strconv.ParseFloat(cell, 64); err != nil && cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) {
				cells[i] = "'" + cells[i]
			}
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
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

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
