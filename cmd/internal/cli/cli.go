// Package cli is the common part of vgpud's command lines: how they end and what their exit codes
// mean.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The exit codes.
const (
	OK     = 0
	Failed = 1
	Usage  = 2
)

// UsageError is the error of a wrong command line.
type UsageError struct{ Err error }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }

// Error returns the error's text.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e UsageError) Unwrap() error { return e.Err }

// Run executes root's command line until it ends or the process gets SIGINT or SIGTERM, and returns
// the exit code. An error is printed to standard error, after the program's name. Each of explain may
// say it in another way before.
func Run(root *cobra.Command, explain ...func(error) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{Err: flagError(err)} })
	// Its own would print its help for an unknown shell, as if all were well.
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	for _, f := range explain {
		err = f(err)
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	if _, ok := errors.AsType[UsageError](err); ok {
		return Usage
	}
	return Failed
}

// NoArgs refuses arguments and says where to look for help.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		return Usagef("unknown command %q; `%s --help` lists them", args[0], c.CommandPath())
	}
	return Usagef("unknown argument %q; see `%s --help`", args[0], c.CommandPath())
}
