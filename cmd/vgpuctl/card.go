package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/cli"
	"vgpud/internal/memfd"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// areaVariable names the event area's descriptor to the program.
const areaVariable = "VGPU_EVENT_AREA"

func newCard(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "card VM -- PROGRAM [ARGUMENT]...",
		Short: "Run a program that stands in for a network card, with a guest's event area",
		Long: `Run a program that launches a guest's event kernels, as a network card would: by storing
to the guest's event area. The program gets the area's descriptor, whose number is in
` + areaVariable + `, and nothing else of the guest's: neither rings nor windows. See
docs/device.md, "Event kernels", for what is in it.

It needs the rights to open the descriptors of the guest's process: those of root.`,
		Example:           "  vgpuctl card web1 -- ./packets --queue 0",
		Args:              atLeast("VM", "PROGRAM"),
		ValidArgsFunction: completeCard(o),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := ask(c, o, func(client *api.Client, ctx context.Context) (api.VM, error) { return client.VM(ctx, args[0]) })
			if err != nil {
				return err
			}
			return runCard(c, v, args[1:])
		},
	}
	return c
}

// completeCard completes the guest's name, and then files.
func completeCard(o *options) cobra.CompletionFunc {
	vms := completeVMs(o)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return vms(c, args, word)
	}
}

// runCard runs a program with the event area of a guest.
func runCard(c *cobra.Command, v api.VM, argv []string) (err error) {
	area, err := openEventArea(v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, area.Close()) }()
	cmd := exec.CommandContext(c.Context(), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.OutOrStdout(), c.ErrOrStderr()
	cmd.ExtraFiles = []*os.File{area} // 3
	cmd.Env = append(os.Environ(), areaVariable+"=3")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	return nil
}

// openEventArea opens the event area of a guest, which its process holds as a file in memory.
func openEventArea(v api.VM) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", v.PID)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for the event area of %s: %w; run as root", v.Name, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:vgpu-bar4") {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open the event area of %s: %w; run as root", v.Name, err)
		}
		if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("the event area of %s: %w", v.Name, err), f.Close())
		}
		return f, nil
	}
	return nil, cli.Usagef("%s has no event area: its GPU has no event kernels, or its contexts float", v.Name)
}
