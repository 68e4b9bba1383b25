package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"vgpud/clock"
	"vgpud/e2e/papers/parallel"
)

func main() {
	out := flag.String("out", "", "directory for the report, the JSON and the drawings; none: print only")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	parallel.Show(parallel.NewProgress("preemptbench", os.Stderr, clock.Real{}, 10*time.Second))
	if err := run(os.Stdout, *out); err != nil {
		fmt.Fprintln(os.Stderr, "preemptbench:", err)
		os.Exit(1)
	}
}

// run does all experiments and prints them. It also writes them to dir unless dir is empty.
func run(w io.Writer, dir string) error {
	r, err := everything(whole)
	if err != nil {
		return err
	}
	r.print(w)
	if dir != "" {
		if err := r.write(dir); err != nil {
			return err
		}
	}
	for _, t := range r.Targets {
		if !t.passed() {
			return fmt.Errorf("%s: %.2f %s, at most %g", t.Name, t.Reached, t.Unit, t.Limit)
		}
	}
	return nil
}
