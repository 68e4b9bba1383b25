package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"vgpud/clock"
	"vgpud/e2e/papers/parallel"
)

func main() {
	out := flag.String("out", "", "directory for the page and the JSON file; none: print only")
	only := flag.String("policies", strings.Join(policies, ","), "policies to try, with a comma between them")
	verbose := flag.Bool("v", false, "print each run as it ends")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	wanted := strings.Split(*only, ",")
	tried := slices.DeleteFunc(slices.Clone(policies), func(p string) bool { return !slices.Contains(wanted, p) })
	parallel.Show(parallel.NewProgress("quotas", os.Stderr, clock.Real{}, 10*time.Second))
	r, err := makeReport(trials(tried, counts), func(name string, took time.Duration) {
		if *verbose {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, took.Round(time.Millisecond))
		}
	})
	if err == nil {
		fmt.Print(r.page())
		if *out != "" {
			err = r.write(*out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quotas:", err)
		os.Exit(1)
	}
}
