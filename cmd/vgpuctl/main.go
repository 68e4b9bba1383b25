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

func run() int { return cli.Run(newRoot(), explained) }

// explained returns an error as it is said to people. Of what the daemon, or package api, refuses, the
// kind is for programs: the text before it says what is wrong. An invalid value is an error of usage.
func explained(err error) error {
	_, usage := errors.AsType[cli.UsageError](err)
	text := err.Error()
	for _, kind := range []error{api.ErrInvalid, api.ErrInUse, api.ErrNoRoom} {
		if errors.Is(err, kind) {
			text = strings.TrimSuffix(text, ": "+kind.Error())
			usage = usage || kind == api.ErrInvalid
		}
	}
	if usage {
		return cli.Usagef("%s", text)
	}
	return errors.New(text)
}
