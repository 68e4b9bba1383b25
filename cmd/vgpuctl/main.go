// Command vgpuctl is the operator's command line to a running vgpud.
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"os"

	"vgpud/cmd/internal/cli"
)

func main() { os.Exit(run()) }

func run() int { return cli.Run(newRoot()) }
