package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

// libvirtLimit bounds the connection to libvirt and its answers.
const libvirtLimit = 30 * time.Second

// definition is the common part of define and undefine.
type definition struct {
	uri             string
	dryRun, verbose bool
}

func (d *definition) flags(c *cobra.Command) {
	c.Flags().StringVarP(&d.uri, "connect", "c", libvirt.DefaultURI, "libvirt's `URI`")
	c.Flags().BoolVar(&d.dryRun, "dry-run", false, "only show the changes to the domain's XML")
	c.Flags().BoolVarP(&d.verbose, "verbose", "v", false, "show the changes to the domain's XML")
}

func newDefine(o *options) *cobra.Command {
	var d definition
	var gpu domain.GPU
	var count int
	var runDir string
	o = o.here()
	c := &cobra.Command{
		Use:   "define DOMAIN",
		Short: "Give a libvirt domain a virtual GPU, from its next start on",
		Long: `Give a libvirt domain a virtual GPU, from its next start on, in place of those that it
has. This changes the domain's persistent definition: vgpud's element in the metadata,
which the hook reads; QEMU's arguments for the device; and a spare port, into which
"vgpuctl attach" can plug one more. Everything else stays as it is.`,
		Example: "  vgpuctl define web1 --weight 2 --memory 4GiB\n  vgpuctl define web1 --cap 50% --dry-run",
		Args:    exactly("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			if count < 1 || count > domain.MaxGPUs {
				return cli.Usagef("--count %d: want 1 to %d", count, domain.MaxGPUs)
			}
			gpus := make(domain.Devices, count)
			for i := range gpus {
				gpus[i] = gpu
			}
			if err := gpus.Check(); err != nil {
				return cli.UsageError{Err: err}
			}
			dir, err := o.runDir(runDir)
			if err != nil {
				return err
			}
			if err := o.checkLocal(c); err != nil {
				return err
			}
			return d.change(c, args[0], func(xml []byte) ([]byte, error) { return domain.Define(xml, gpus, dir) })
		},
	}
	gpuFlags(c, o, &gpu)
	c.Flags().IntVar(&count, "count", 1, "number of virtual GPUs, all with these flags")
	runDirFlag(c, &runDir)
	d.flags(c)
	c.ValidArgsFunction = d.complete
	return c
}

func newUndefine(o *options) *cobra.Command {
	var d definition
	c := &cobra.Command{
		Use:   "undefine DOMAIN",
		Short: "Remove the virtual GPUs from a libvirt domain, from its next start on",
		Long: `Remove the virtual GPUs from a libvirt domain, from its next start on: everything that
"vgpuctl define" wrote into its definition. The domain itself stays.`,
		Args: exactly("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.checkLocal(c); err != nil {
				return err
			}
			return d.change(c, args[0], domain.Undefine)
		},
	}
	d.flags(c)
	c.ValidArgsFunction = d.complete
	return c
}

// connect connects to libvirt.
func (d *definition) connect(c *cobra.Command) (*libvirt.Conn, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(c.Context(), libvirtLimit)
	conn, err := libvirt.Open(ctx, libvirt.Options{URI: d.uri})
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return conn, ctx, cancel, nil
}

// change edits a domain's persistent definition.
func (d *definition) change(c *cobra.Command, name string, edit func([]byte) ([]byte, error)) (err error) {
	conn, ctx, cancel, err := d.connect(c)
	if err != nil {
		return err
	}
	defer cancel()
	defer func() { err = errors.Join(err, conn.Close()) }()
	dom, err := conn.Domain(ctx, name, libvirt.Persistent)
	if err != nil {
		return err
	}
	if !dom.Persistent {
		return fmt.Errorf("domain %s is transient: it has no persistent definition to change", dom.Name)
	}
	before := []byte(dom.XML)
	after, err := edit(before)
	if err != nil {
		return fmt.Errorf("domain %s: %w", dom.Name, err)
	}
	if bytes.Equal(before, after) {
		_, err := fmt.Fprintf(c.OutOrStdout(), "domain %s: nothing to change\n", dom.Name)
		return err
	}
	if d.dryRun || d.verbose {
		if _, err := c.OutOrStdout().Write(domain.Diff(dom.Name+".xml", before, after)); err != nil {
			return err
		}
	}
	if d.dryRun {
		return nil
	}
	if err := conn.Define(ctx, after); err != nil {
		return fmt.Errorf("domain %s: %w", dom.Name, err)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "domain %s: %s%s\n", dom.Name, summary(after), when(dom.Active))
	return err
}

// summary describes the virtual GPUs of a domain's definition.
func summary(xml []byte) string {
	v, err := domain.Parse(xml)
	if err != nil || len(v.GPUs) == 0 {
		return "no virtual GPU"
	}
	s := "a virtual GPU"
	if len(v.GPUs) > 1 {
		s = strconv.Itoa(len(v.GPUs)) + " virtual GPUs"
	}
	t := v.GPUs[0].Terms()
	s += ", weight " + number(t.Weight)
	if t.Cap > 0 {
		s += ", cap " + ratio(t.Cap)
	}
	if t.Guarantee > 0 {
		s += ", guarantee " + ratio(t.Guarantee)
	}
	return s
}

func when(active bool) string {
	if active {
		return " (from its next start on: it is running)"
	}
	return ""
}

// complete completes the names of domains.
func (d *definition) complete(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	conn, ctx, cancel, err := d.connect(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer cancel()
	domains, err := conn.Domains(ctx)
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, d := range domains {
		names = append(names, d.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func runDirFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "run-dir", "", "the daemon's run_dir (default: the `directory` of its socket)")
}

// runDir returns the directory of the daemon's sockets.
func (o *options) runDir(flag string) (string, error) {
	if flag == "" {
		flag = filepath.Dir(o.socket)
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", fmt.Errorf("--run-dir: %w", err)
	}
	return dir, nil
}
