package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"vgpud/clock"
	"vgpud/e2e/papers/parallel"
)

func main() {
	out := flag.String("out", "", "directory for the report, the JSON and the drawings; none: print only")
	checked := flag.String("check", "", "directory whose results are compared with the goals")
	measured := flag.String("gpu", "", "file of e2e/nvidia/run with parts of event kernels, to be taken over into -out")
	parts := flag.String("parts", "", "log of TestHardwareEventParts, for -gpu; none: as before")
	flag.Parse()
	if flag.NArg() > 0 || *parts != "" && *measured == "" || *measured != "" && *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	err := error(nil)
	if *measured != "" {
		err = takeGPU(*out, *measured, *parts)
	} else {
		err = carryOut(*out, *checked)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

// carryOut does what the flags say.
func carryOut(out, checked string) error {
	if checked != "" {
		return goalSet.Check(os.Stdout, checked)
	}
	parallel.Show(parallel.NewProgress("edge", os.Stderr, clock.Real{}, 10*time.Second))
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
