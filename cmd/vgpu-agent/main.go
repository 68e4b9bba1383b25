// Command vgpu-agent is the guest's daemon: it prepares the virtual GPUs of a VM, checks that they
// compute, and shares them among the VM's programs.
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"os"

	"vgpud/cmd/internal/cli"
)

func main() { os.Exit(run()) }

func run() int { return cli.Run(newRoot()) }
