// Command demoguest is a guest's program for demos and tests: the work of `vgpud demo-guest`,
// without any code of the host, for a VM. It reads its plan from standard input and reports on
// standard output until SIGINT or SIGTERM.
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
