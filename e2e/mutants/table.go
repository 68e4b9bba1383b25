package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// printTable prints results for people.
func printTable(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ITEM\tPATCH\tRESULT\tSECONDS\tREMOVES")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%s\n", r.Item, r.Patch, r.Verdict, r.Seconds, r.Removes)
	}
	return t.Flush()
}

// printJSON prints results for programs.
func printJSON(w io.Writer, results []result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}
