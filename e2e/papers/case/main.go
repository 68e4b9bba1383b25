package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "", "directory for the report, the JSON and the drawings; none: print only")
	find := flag.Bool("fit", false, "find the factors by which single assignment alone gives the paper's table 7")
	timed := flag.String("time", "", "directory for the times that decisions take on this machine")
	checked := flag.String("check", "", "directory whose results are compared with the goals")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := carryOut(*out, *timed, *checked, *find); err != nil {
		fmt.Fprintln(os.Stderr, "case:", err)
		os.Exit(1)
	}
}

// carryOut does what the flags say.
func carryOut(out, timed, checked string, find bool) error {
	switch {
	case find:
		fit(os.Stdout)
		return nil
	case timed != "":
		return clock(timed)
	case checked != "":
		return check(os.Stdout, checked)
	}
	r, err := everything(whole)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if out == "" {
		return nil
	}
	return r.write(out)
}
