// Command vgpu-nvml loads NVIDIA's management library (NVML), for vgpud and vgpuctl, which contain
// no C and run it. It only reads.
//
//	vgpu-nvml [--every 5s]
//	vgpu-nvml --once
//
// It writes the list of GPUs, then samples of their state at intervals, and errors as they happen,
// one line of JSON each, until its standard input ends. With --once it ends after the first list
// and samples.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"vgpud/cmd/internal/version"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/gpu/nvidia/inventory/binding"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	f := flag.NewFlagSet(inventory.ProgramName, flag.ContinueOnError)
	once := f.Bool("once", false, "end after one round")
	show := f.Bool("version", false, "print the version")
	every := f.Duration("every", inventory.DefaultEvery, "time between two rounds of samples")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if *show {
		fmt.Println(inventory.ProgramName, "version", version.String())
		return 0
	}
	if f.NArg() > 0 || *every <= 0 {
		fmt.Fprintf(os.Stderr, "usage: %s [--once] [--every DURATION]\n", inventory.ProgramName)
		return 2
	}
	var err error
	if *once {
		err = inventory.Print(os.Stdout, binding.Open)
	} else {
		err = inventory.Serve(context.Background(), os.Stdin, os.Stdout, *every, binding.Open)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", inventory.ProgramName, err)
		return 1
	}
	return 0
}
