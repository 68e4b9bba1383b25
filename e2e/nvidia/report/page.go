package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Page returns the file, which is called name, as a page of Markdown.
func (f *File) Page(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured on a real GPU\n\n%s, driver %s, %s. Made by `e2e/nvidia/run --table` from [%[4]s](%[4]s),\n"+
		"which `e2e/nvidia/run` wrote. %[5]s. Nothing is configured but what a row names. Every figure is the median of the runs given, or of all of them\n"+
		"together where that is said; spread is the largest run less the smallest. Baselines were measured in the same run unless their name says where they are from. Ratios, shares and errors are fractions of 1.\n\n",
		f.GPU, f.Driver, f.Date, name, f.builds())
	b.WriteString("| what | value | goal | met | baselines | runs | spread |\n|---|---|---|---|---|---|---|\n")
	for i := range f.Rows {
		r := &f.Rows[i]
		fmt.Fprintf(&b, "| %s (`%s`) | **%s** %s | %s %s | %s | %s | %d | %s |\n", what(r.ID), r.ID, number(r.Value), r.Unit,
			bound(r.ID), number(r.Goal), yes(r.Met), Baselines(r.Baseline), r.Runs, number(r.Spread))
	}
	if missing := f.missing(); len(missing) > 0 {
		fmt.Fprintf(&b, "\nNot measured: %s.\n", strings.Join(missing, ", "))
	}
	f.missed(&b)
	f.caveats(&b)
	b.WriteString("\n## What was measured, and how\n")
	for i := range f.Rows {
		r := &f.Rows[i]
		how := strings.TrimSuffix(r.How, ".")
		if r.Caveat != "" {
			how += ". But " + strings.TrimSuffix(r.Caveat, ".")
		}
		fmt.Fprintf(&b, "\n**`%s`** — %s. `%s`\n", r.ID, how, r.Command)
		if r.Detail != nil {
			r.Detail.Print(&b)
		}
	}
	f.faults(&b)
	return b.String()
}

// builds returns a sentence on the number of daemon builds that the rows are from.
func (f *File) builds() string {
	rows := make(map[string]int)
	for i := range f.Rows {
		rows[f.Rows[i].Build]++
	}
	switch names := slices.Sorted(maps.Keys(rows)); {
	case len(names) == 1 && names[0] != "":
		return "All rows are by one build of the daemon (" + names[0] + ")"
	case rows[""] > 0:
		return "By which builds of the daemon the rows are is not known of all"
	default:
		return fmt.Sprintf("The rows are by %d builds of the daemon", len(names))
	}
}

// missing returns the ids that have no row.
func (f *File) missing() (ids []string) {
	for _, t := range targets {
		// Rows that take several GPUs have a file of their own.
		if f.Row(t.ID) == nil && !strings.HasPrefix(t.ID, "gpu_") {
			ids = append(ids, "`"+t.ID+"`")
		}
	}
	return ids
}

// missed lists the missed goals with the reasons.
func (f *File) missed(b *strings.Builder) {
	head := "\n## Goals missed\n\n"
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.Met {
			continue
		}
		why := r.Why
		if why == "" {
			why = "the reason is not known yet"
		}
		fmt.Fprintf(b, "%s- `%s`: %s, goal %s %s. %s.\n", head, r.ID, number(r.Value), bound(r.ID), number(r.Goal), strings.TrimSuffix(why, "."))
		head = ""
	}
}

// caveats lists the caveats of goals that were met.
func (f *File) caveats(b *strings.Builder) {
	head := "\n## Goals met, but\n\n"
	for i := range f.Rows {
		if r := &f.Rows[i]; r.Met && r.Caveat != "" {
			fmt.Fprintf(b, "%s- `%s`: %s.\n", head, r.ID, strings.TrimSuffix(r.Caveat, "."))
			head = ""
		}
	}
}

func (f *File) faults(b *strings.Builder) {
	if len(f.Faults) == 0 {
		return
	}
	b.WriteString("\n## Faults that were tried\n\n| what | seen | recovered |\n|---|---|---|\n")
	for _, x := range f.Faults {
		fmt.Fprintf(b, "| %s | %s | %s |\n", cell(x.What), cell(x.Saw), yes(x.Recovered))
	}
}

// Print writes the table as Markdown.
func (t *Table) Print(b *strings.Builder) {
	fmt.Fprintf(b, "\n| | %s |\n|---|%s\n", strings.Join(t.Columns, " | "), strings.Repeat("---|", len(t.Columns)))
	for _, l := range t.Lines {
		fmt.Fprintf(b, "| %s |", cell(l.Name))
		for _, v := range l.Values {
			fmt.Fprintf(b, " %s |", number(float64(v)))
		}
		b.WriteString("\n")
	}
}

// what returns the description of an id's value.
func what(id string) string {
	if i := place(id); i < len(targets) {
		return targets[i].What
	}
	return id
}

// bound returns the description of an id's goal.
func bound(id string) string {
	if i := place(id); i < len(targets) && targets[i].Least {
		return "≥"
	}
	return "≤"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "**no**"
}

// Baselines returns baselines as text, by their names.
func Baselines(all map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+number(all[name]))
	}
	return strings.Join(parts, "; ")
}

// number formats a value with its significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a == 0:
		return "0"
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 1:
		return trimmed(v, 3-len(strconv.Itoa(int(a)))+1)
	case a < leastSaid:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return trimmed(v, decimals)
}

// decimals is the number of decimals for values below 1, and leastSaid the smallest value that they
// can express.
const (
	decimals  = 5
	leastSaid = 1e-5
)

// trimmed formats a value with the given number of decimals, without zeros at the end.
func trimmed(v float64, decimals int) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', decimals, 64), "0"), ".")
}

// cell escapes text for a table's cell.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
