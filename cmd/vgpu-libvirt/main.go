// Command vgpu-libvirt loads libvirt's client library, for vgpud and vgpuctl, which contain no C
// and run it.
//
//	vgpu-libvirt URI
//
// It connects to libvirt at the URI, reads requests from standard input and writes answers and
// events of domains to standard output, one line of JSON each. It ends when standard input or the
// connection ends.
package main

import (
	"context"
	"fmt"
	"os"

	"vgpud/cmd/internal/version"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/binding"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println(libvirt.ProgramName, "version", version.String())
		return 0
	}
	if len(args) != 1 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintf(os.Stderr, "usage: %s URI\n\nvgpud and vgpuctl run this program to talk to libvirt, at %s for example.\n", libvirt.ProgramName, libvirt.DefaultURI)
		return 2
	}
	err := libvirt.Serve(context.Background(), os.Stdin, os.Stdout, func() (libvirt.Hypervisor, error) { return binding.Open(args[0]) })
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", libvirt.ProgramName, err)
		return 1
	}
	return 0
}
