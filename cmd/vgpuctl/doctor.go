package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"vgpud/cmd/vgpuctl/internal/doctor"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
)

// errNotReady is what `doctor` ends with where it found what is needed missing. The
// list has said it.
var errNotReady = errors.New("guests can't have GPUs here yet: see what is marked needed above")

func newDoctor(o *options) *cobra.Command {
	var output, root, qemu, uri string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can do, and what to do about the rest",
		Long: `Look at all that vgpud can use on this host: the daemon, NVIDIA's libraries and
what the driver lets vgpud do with a GPU, KVM, QEMU, libvirt. Of each it says
whether it is there, or why not and what to do. It works with or without a
daemon, changes nothing, and says so where it was not allowed to look: root sees
all. Exit status 1 where something is missing without which guests can't have
GPUs at all.

What a GPU can do is found out by trying it, by "vgpud probe" in a process of its
own, on a context of its own.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return cli.Usagef("output %q: want table or json", output)
			}
			client := o.client()
			defer client.Close()
			h := examined(client, root, uri)
			if qemu != "" {
				h.QEMU = []string{qemu}
			}
			r := doctor.Examine(c.Context(), h)
			if err := printReport(c.OutOrStdout(), r, output == "json"); err != nil {
				return err
			}
			if !r.Ready {
				return errNotReady
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "table", "output: table, json")
	f.StringVar(&qemu, "qemu", "", "the QEMU that VMs run under (default: the one in $PATH)")
	f.StringVar(&uri, "libvirt", libvirt.DefaultURI, "libvirt's URI")
	f.StringVar(&root, "root", "/", "where the host's files are looked for")
	if err := errors.Join(
		f.MarkHidden("root"),
		c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)),
	); err != nil {
		panic(err)
	}
	return c
}

// examined is this host.
func examined(client *api.Client, root, uri string) *doctor.Host {
	return &doctor.Host{
		Files:  os.DirFS(root),
		Access: func(path string) error { return unix.Access(filepath.Join(root, path), unix.R_OK|unix.W_OK) },
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
		Version: cli.Version(),
		QEMU:    qemus[runtime.GOARCH],
	}
}

// qemus are QEMU's names for VMs of this host's kind. The last is that of RHEL and
// those like it, which is in no $PATH.
var qemus = map[string][]string{
	"amd64": {"qemu-system-x86_64", "qemu-kvm", "/usr/libexec/qemu-kvm"},
	"arm64": {"qemu-system-aarch64", "qemu-kvm", "/usr/libexec/qemu-kvm"},
}

// find finds a program: beside this one, in $PATH, or where only root's are.
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

// runProgram runs a program to its end.
func runProgram(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s does not end: %w", program, context.Cause(ctx))
	}
	return out.String(), doctor.Explain(err, said.String())
}

var abilityColumns = []column[ability.Ability]{
	{"ABILITY", false, func(a ability.Ability) string { return a.Name }},
	{"GPU", false, func(a ability.Ability) string { return a.GPU }},
	{"HERE", false, func(a ability.Ability) string {
		if a.Needed && a.State == ability.Absent {
			return "no, needed"
		}
		return string(a.State)
	}},
	{"WHAT", false, func(a ability.Ability) string { return a.What }},
}

// printReport prints what was found, and what to do about it below the table.
func printReport(w io.Writer, r doctor.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	if err := table(w, &format{kind: "table"}, abilityColumns, r.Abilities); err != nil {
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
