// Command vgpuctl is the operator's command line to a running vgpud.
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"errors"
	"os"
	"strings"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func main() { os.Exit(run()) }

func run() int { return cli.Run(newRoot(), asUsage) }

// asUsage returns what the daemon, or package api, calls invalid as an error of usage: it has said what
// would be right, and that the error is one of that kind is for programs.
func asUsage(err error) error {
	if _, usage := errors.AsType[cli.UsageError](err); !usage && !errors.Is(err, api.ErrInvalid) {
		return err
	}
	return cli.Usagef("%s", strings.TrimSuffix(err.Error(), ": "+api.ErrInvalid.Error()))
}
