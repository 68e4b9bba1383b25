package plot

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// Texts returns figures as text, one after the other.
func Texts(figures ...[]Figure) string {
	var b strings.Builder
	for _, fs := range figures {
		for i := range fs {
			b.WriteString(fs[i].Text())
			b.WriteString("\n")
		}
	}
	return b.String()
}

// Text is the figure as a table, with the paper's numbers beside it.
func (f *Figure) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Figure %s. %s.\n", f.Number, f.Title)
	fmt.Fprintf(&b, "  paper: %s\n", f.Paper)
	if f.Ours != "" {
		fmt.Fprintf(&b, "  here:  %s\n", f.Ours)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, c := range f.Columns {
		fmt.Fprintf(w, "%s\t", c)
	}
	fmt.Fprintln(w)
	for _, r := range f.Rows {
		fmt.Fprintf(w, "%s\t", r.Name)
		for column, v := range r.Values {
			if math.IsNaN(v) {
				fmt.Fprint(w, "-\t")
				continue
			}
			fmt.Fprintf(w, "%.3f", math.Round(v*1000)/1000+0) // no negative zero
			if d, ok := r.spread(column); ok {
				fmt.Fprintf(w, " ±%.3f", d)
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}
