// Command vgpud is the host's program: the daemon, and the processes it starts.
//
//	vgpud serve      the daemon
//	vgpud softgpu    a GPU in software
//	vgpud demo       the main job, on this machine
//	vgpud vm, exec   a guest's virtual GPU and a guest context's executor
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	cmd := newRoot()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "vgpud:", err)
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

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:           "vgpud",
		Short:         "Share the host's GPUs among its guests",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	o.flags(root)
	root.AddCommand(newServe(&o), newSoftGPU(&o), newDemo(&o), newVM(&o), newExec(&o), newDemoGuest(&o))
	return root
}

// noArgs explains a word that should not be there.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown argument %q; see `%s --help`", args[0], c.CommandPath())}
}

// version is the module's, or the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
