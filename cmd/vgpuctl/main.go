// Command vgpuctl is the operator's command line: it asks a running vgpud.
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	cmd := newRoot()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "vgpuctl:", err)
		if usage := (usageError{}); errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// usageError is a command line that can't be meant.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
