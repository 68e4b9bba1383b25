package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// text is the figure as a table, with the paper's numbers beside it.
func (f *figure) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Figure %s. %s.\n", f.number, f.title)
	fmt.Fprintf(&b, "  paper: %s\n", f.paper)
	if f.ours != "" {
		fmt.Fprintf(&b, "  here:  %s\n", f.ours)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, c := range f.columns {
		fmt.Fprintf(w, "%s\t", c)
	}
	fmt.Fprintln(w)
	for _, r := range f.rows {
		fmt.Fprintf(w, "%s\t", r.name)
		for _, v := range r.values {
			fmt.Fprintf(w, "%.3f\t", math.Round(v*1000)/1000+0) // no negative zero
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

// targetText is the table of targets.
func targetText(reached []target) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Targets, over %d loads of 1 to 16 guests: throttles of 10 to 100 %%, applications of the corpus, both; 10 s each.\n", reached[0].runs)
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WHAT\tLIMIT\tWORST\tMEAN\tRESULT\tWORST LOAD")
	for _, t := range reached {
		fmt.Fprintf(w, "%s\t%s\t%.3f %s\t%.3f\t%s\t%s\n", t.name, t.limit, t.worst, t.unit, t.mean, t.verdict(), t.where)
	}
	w.Flush()
	return b.String()
}
