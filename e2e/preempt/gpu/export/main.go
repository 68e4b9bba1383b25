// Command export writes the kernels of e2e/preempt/hard for hard.sh: DIR/NAME.ptx, a module as a
// tenant would load it, and DIR/NAME.N.case, its launches.
//
//	export [-generated N] [-from SEED] DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"vgpud/e2e/preempt/hard"
)

func main() {
	generated := flag.Uint64("generated", 200, "how many generated kernels to write")
	from := flag.Uint64("from", 0, "the seed of the first one; the others follow")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: export [-generated N] [-from SEED] DIR")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := export(flag.Arg(0), *from, *generated); err != nil {
		fmt.Fprintln(os.Stderr, "export:", err)
		os.Exit(1)
	}
}

func export(dir string, from, generated uint64) error {
	var errs []error
	write := func(name, text string) {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	written := map[string]int{}
	for _, k := range hard.Tricks() {
		if k.Most == 0 {
			continue // it has no form to compare with
		}
		if written[k.File] == 0 {
			write(k.File+".ptx", hard.PTX(k.File))
		}
		write(fmt.Sprintf("%s.%d.case", k.File, written[k.File]), string(k.Case().File()))
		written[k.File]++
	}
	for seed := from; seed < from+generated; seed++ {
		text, c := hard.Generate(hard.Input(seed))
		name := fmt.Sprintf("generated%d", seed)
		write(name+".ptx", text)
		write(name+".0.case", string(c.File()))
	}
	return errors.Join(errs...)
}
