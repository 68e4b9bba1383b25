package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/ability"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/internal/version"
	"vgpud/cmd/vgpuctl/internal/doctor"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
)

// errNotReady is the result of `doctor` if something needed is missing. The table has said what.
var errNotReady = errors.New("guests can't have GPUs here yet: see the entries marked needed above")

func newDoctor(o *options) *cobra.Command {
	var root, qemu, uri string
	format := output.Format{Kinds: []string{"table", "json"}}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host can do, and say what to do about the rest",
		Long: `Check everything that vgpud can use on this host: the daemon, NVIDIA's libraries and what
the driver lets vgpud do with a GPU, KVM, QEMU, libvirt. For each it shows whether it is
there, or why not and what to do. It works with or without a daemon and changes nothing.
A check that this user may not make is marked: root can make all of them. The exit status is
1 if something is missing without which guests can't have GPUs at all.

The abilities of a GPU are tried by "vgpud probe", in a process and a context of their own.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			client, err := o.here().client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			h := examined(client, root, uri)
			if qemu != "" {
				h.QEMU = []string{qemu}
			}
			r := doctor.Examine(c.Context(), h)
			if err := printReport(c.OutOrStdout(), &format, r); err != nil {
				return err
			}
			if !r.Ready {
				return errNotReady
			}
			return nil
		},
	}
	f := c.Flags()
	format.OutputFlag(c, "table", "output: table, json")
	f.StringVar(&qemu, "qemu", "", "the QEMU that VMs run under (default: the one in $PATH)")
	f.StringVar(&uri, "libvirt", libvirt.DefaultURI, "libvirt's URI")
	f.StringVar(&root, "root", "/", "the root of the host's files")
	if err := f.MarkHidden("root"); err != nil {
		panic(err)
	}
	return c
}

// examined returns this host.
func examined(client *api.Client, root, uri string) *doctor.Host {
	return &doctor.Host{
		Files:  os.DirFS(root),
		TryKVM: func(path string) error { return doctor.TryKVM(filepath.Join(root, path)) },
		Find:   find,
		Run:    runProgram,
		Health: client.Health,
		GPUs:   client.GPUs,
		Inventory: func(ctx context.Context) (inventory.Inventory, error) {
			v, _, err := inventory.Once(ctx, "")
			return v, err
		},
		Domains: func(ctx context.Context) (n int, err error) {
			l, err := libvirt.Open(ctx, libvirt.Options{URI: uri})
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			all, err := l.Domains(ctx)
			return len(all), err
		},
		Version: version.String(),
		QEMU:    qemus[runtime.GOARCH],
	}
}

// qemus lists QEMU's names for VMs of this host's architecture. The last is RHEL's, outside $PATH.
var qemus = map[string][]string{
	"amd64": {"qemu-system-x86_64", "qemu-kvm", "/usr/libexec/qemu-kvm"},
	"arm64": {"qemu-system-aarch64", "qemu-kvm", "/usr/libexec/qemu-kvm"},
}

// find finds a program: beside this one, in $PATH, or in root's directories.
func find(name string) (string, error) {
	if self, err := os.Executable(); err == nil && !strings.ContainsRune(name, '/') {
		if path := filepath.Join(filepath.Dir(self), name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin"} {
		if path := filepath.Join(dir, name); os.Getuid() != 0 && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", err
}

// runProgram runs a program and returns its output.
func runProgram(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s did not end: %w", program, context.Cause(ctx))
	}
	return out.String(), doctor.Explain(err, stderr.String())
}

// abilityTable prints abilities.
var abilityTable = table[ability.Ability]{columns: func([]ability.Ability) []column[ability.Ability] { return abilityColumns }}

var abilityColumns = []column[ability.Ability]{
	{head: "ABILITY", value: func(a ability.Ability) string { return a.Name }},
	{head: "GPU", value: func(a ability.Ability) string { return a.GPU }},
	{head: "HERE", value: func(a ability.Ability) string {
		if a.Needed && a.State == ability.Absent {
			return "no, needed"
		}
		return string(a.State)
	}},
	{head: "WHAT", value: func(a ability.Ability) string { return a.What }},
}

// printReport prints the table, and below it what to do.
func printReport(w io.Writer, f *output.Format, r doctor.Report) error {
	if f.Kind == "json" {
		return output.JSON(w, r)
	}
	if err := abilityTable.print(w, f, r.Abilities); err != nil {
		return err
	}
	head := "\nWhat to do:\n"
	for _, a := range r.Abilities {
		if a.Do == "" {
			continue
		}
		name := a.Name
		if a.GPU != "" {
			name += " of " + a.GPU
		}
		if _, err := fmt.Fprintf(w, "%s  %s: %s\n", head, name, a.Do); err != nil {
			return err
		}
		head = ""
	}
	return nil
}
