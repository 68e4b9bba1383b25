// Command vgpu-nvml has NVIDIA's management library (NVML), for vgpud and vgpuctl,
// which have no C in them. They run it; nobody else needs to, though it does no
// harm: it only asks.
//
//	vgpu-nvml [--every 5s]
//	vgpu-nvml --once
//
// It writes which GPUs there are, and then how they are, again and again, and what
// goes wrong on them as it does, a line of JSON each, until its standard input
// ends. With --once it ends after the first of each.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"vgpud/gpu/nvidia/inventory"
	"vgpud/gpu/nvidia/inventory/binding"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	f := flag.NewFlagSet(inventory.ProgramName, flag.ContinueOnError)
	once := f.Bool("once", false, "end after one round")
	every := f.Duration("every", inventory.DefaultEvery, "time between two rounds of samples")
	if err := f.Parse(args); err != nil {
		return 2
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
