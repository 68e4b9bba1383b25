// The program computes nothing, so it need not read the limits of its control group, which the
// profile of a guest does not let it do.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command vgpu-qemu stands where libvirt finds QEMU, and becomes QEMU. It appends the arguments that
// vgpu-hook wrote for the domain, so that a domain has virtual GPUs although its XML has nothing of
// vgpud's: Nova and other engines write the XML themselves, anew at each start.
//
//	vgpu-qemu QEMU'S ARGUMENTS
//
// The domain is the one of the argument -uuid. Its arguments are in
// /run/vgpud/domains/UUID/qemu.args, one a line. Without that file, or without -uuid, as when libvirt
// asks QEMU for its capabilities, QEMU gets the arguments as they are. A file that anybody but root
// could have written is refused, with one line on standard error, which libvirt shows.
//
// /etc/vgpud/qemu.yaml, which is optional, says where QEMU is. The environment says nothing: it is
// the engine's, and in part the tenant's.
//
//	vgpu-qemu --vgpu-qemu
//
// prints which QEMU it becomes.
//
// Exit codes: QEMU's, or 1 if it is not started.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"vgpud/cmd/internal/version"
)

// inquiry, as the only argument, asks which QEMU is run.
const inquiry = "--vgpu-qemu"

func main() { os.Exit(run(host{root: "/"}, os.Args[1:])) }

// run becomes QEMU. It returns the exit code if it can't, or need not.
func run(h host, args []string) int {
	if err := start(h, args); err != nil {
		fmt.Fprintln(os.Stderr, "vgpu-qemu:", err)
		return 1
	}
	return 0
}

// start becomes QEMU. It returns no error after an inquiry.
func start(h host, args []string) error {
	c, err := h.config()
	if err != nil {
		return err
	}
	qemu, err := h.emulator(c.QEMU)
	if err != nil {
		return err
	}
	if len(args) == 1 && args[0] == inquiry {
		_, err := fmt.Printf("vgpu-qemu version %s runs %s\n", version.String(), qemu)
		return err
	}
	uuid, err := domainUUID(args)
	if err != nil {
		return err
	}
	if uuid != "" {
		more, err := h.arguments(c.RunDir, uuid)
		if err != nil {
			return err
		}
		args = append(args[:len(args):len(args)], more...)
	}
	path := filepath.Join(h.root, qemu)
	if err := syscall.Exec(path, append([]string{path}, args...), os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", qemu, err)
	}
	return nil
}
