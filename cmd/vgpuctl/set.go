package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newSet(o *options) *cobra.Command {
	set := &cobra.Command{
		Use:   "set",
		Short: "Change a guest or a GPU",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	vm := &cobra.Command{
		Use:               "vm NAME weight=N",
		Short:             "Change a guest; a weight takes effect at once",
		Example:           "  vgpuctl set vm web1 weight=4",
		Args:              exactly("NAME", "weight=N"),
		ValidArgsFunction: completeVMs(o),
		RunE: func(c *cobra.Command, args []string) error {
			u, err := parseVMUpdate(args[1])
			if err != nil {
				return err
			}
			ctx, cancel := asking(c)
			defer cancel()
			v, err := o.client().UpdateVM(ctx, args[0], u)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "vm %s: weight %s\n", v.Name, number(v.Weight))
			return err
		},
	}
	gpu := &cobra.Command{
		Use:     "gpu NAME policy=POLICY",
		Short:   "Change the policy by which a GPU is shared, at once",
		Example: "  vgpuctl set gpu gpu0 policy=dfq",
		Args:    exactly("NAME", "policy=POLICY"),
		RunE: func(c *cobra.Command, args []string) error {
			key, value, ok := strings.Cut(args[1], "=")
			if !ok || key != "policy" {
				return cli.Usagef("%q: want policy=NAME", args[1])
			}
			ctx, cancel := asking(c)
			defer cancel()
			g, err := o.client().UpdateGPU(ctx, args[0], api.GPUUpdate{Policy: &value})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "gpu %s: policy %s\n", g.Name, g.Policy)
			return err
		},
	}
	set.AddCommand(vm, gpu)
	return set
}

// parseVMUpdate reads an assignment such as weight=4.
func parseVMUpdate(s string) (api.VMUpdate, error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key != "weight" {
		return api.VMUpdate{}, cli.Usagef("%q: want weight=N", s)
	}
	w, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return api.VMUpdate{}, cli.Usagef("weight %q: want a number", value)
	}
	if err := api.CheckWeight(w); err != nil {
		return api.VMUpdate{}, cli.UsageError{Err: err}
	}
	return api.VMUpdate{Weight: &w}, nil
}

func newCreate(o *options) *cobra.Command {
	create := &cobra.Command{
		Use:   "create",
		Short: "Make a guest's virtual GPU",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var s api.VMSpec
	var uid, gid int
	var limit string
	vm := &cobra.Command{
		Use:     "vm NAME",
		Short:   "Make a virtual GPU and print the socket that its VMM connects to",
		Example: "  vgpuctl create vm web1 --weight 2",
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			s.Name = args[0]
			if limit != "" {
				var err error
				if s.KernelTimeLimit, err = api.ParseTimeLimit(limit); err != nil {
					return cli.Usagef("--kernel-time-limit: %v", err)
				}
			}
			if uid >= 0 {
				s.UID = &uid
			}
			if gid >= 0 {
				s.GID = &gid
			}
			ctx, cancel := asking(c)
			defer cancel()
			v, err := o.client().CreateVM(ctx, s)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), v.Socket)
			return err
		},
	}
	vm.Flags().StringVar(&s.GPU, "gpu", "", "the physical GPU (default: the first)")
	vm.Flags().Float64Var(&s.Weight, "weight", 1, "the guest's part of the GPU relative to other guests'")
	vm.Flags().Uint64Var(&s.BAR2Bytes, "shared-bytes", 0, "memory shared with the guest, a power of two (default 256 MiB)")
	vm.Flags().Uint64Var(&s.MemoryLimitBytes, "memory-bytes", 0, "GPU memory the guest may use (default: the GPU's)")
	vm.Flags().StringVar(&limit, "kernel-time-limit", "", "end a kernel after this much GPU `time`; none: never (default: as the daemon is configured, 10s)")
	vm.Flags().IntVar(&uid, "uid", -1, "user that the socket belongs to, the VMM's (default: the daemon's)")
	vm.Flags().IntVar(&gid, "gid", -1, "group that the socket belongs to")
	create.AddCommand(vm)
	return create
}

func newDelete(o *options) *cobra.Command {
	del := &cobra.Command{
		Use:   "delete",
		Short: "Take a guest's virtual GPU away",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var missingOK bool
	vm := &cobra.Command{
		Use:               "vm NAME",
		Short:             "Take a guest's virtual GPU away, whether or not it is in use",
		Args:              exactly("NAME"),
		ValidArgsFunction: completeVMs(o),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := asking(c)
			defer cancel()
			err := o.client().DeleteVM(ctx, args[0])
			if missingOK && errors.Is(err, api.ErrNotFound) {
				return nil
			}
			return err
		},
	}
	vm.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed where there is no such guest")
	del.AddCommand(vm)
	return del
}
