// Command demoguest is a guest's program for demos and tests: the same work as
// `vgpud demo-guest` does, without anything of the host's, for a VM that has
// nothing else. It reads its plan from standard input and reports on standard
// output until it is told to end (SIGINT, SIGTERM).
//
// Exit codes: 0, 1 failed.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demoguest:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	p, err := workload.ReadPlan(os.Stdin)
	if err != nil {
		return err
	}
	return workload.Run(ctx, p, os.Stdout)
}
