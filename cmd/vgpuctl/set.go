package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/fairshare"
	"vgpud/mediator/api"
)

func newSet(o *options) *cobra.Command {
	var vmAnswer, gpuAnswer answer
	vm := &cobra.Command{
		Use:   "vm NAME KEY=VALUE...",
		Short: "Change a guest, at once",
		Long: `Change a guest's part of its GPU, at once:

  weight=N             its part relative to the other guests' weights
  cap=PART             the largest part of the GPU's time that it gets; none
  guarantee=PART       the least part of the GPU's time that it gets while it has work; none
  priority-ceiling=N   the highest priority that its launches may have

A PART is written 0.25 or 25%.`,
		Example:           "  vgpuctl set vm web1 weight=4\n  vgpuctl set vm web1 cap=50% guarantee=10%",
		Args:              atLeast("NAME", "KEY=VALUE..."),
		ValidArgsFunction: completeVMs(o),
		RunE: func(c *cobra.Command, args []string) error {
			if err := vmAnswer.check(); err != nil {
				return err
			}
			u, err := parseVMUpdate(args[1:])
			if err != nil {
				return err
			}
			v, err := ask(c, o, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.UpdateVM(ctx, args[0], u) })
			if err != nil {
				return err
			}
			return vmAnswer.vm(c.OutOrStdout(), fmt.Sprintf("vm %s: %s", v.Name, updated(v, &u)), v)
		},
	}
	gpu := &cobra.Command{
		Use:               "gpu NAME policy=POLICY",
		Short:             "Change the policy by which a GPU is shared, at once",
		Example:           "  vgpuctl set gpu gpu0 policy=dfq",
		Args:              exactly("NAME", "policy=POLICY"),
		ValidArgsFunction: completePolicy(o),
		RunE: func(c *cobra.Command, args []string) error {
			if err := gpuAnswer.check(); err != nil {
				return err
			}
			key, value, ok := strings.Cut(args[1], "=")
			if !ok || key != "policy" {
				return cli.Usagef("%q: want policy=NAME", args[1])
			}
			g, err := ask(c, o, func(d *api.Client, ctx context.Context) (api.GPU, error) {
				return d.UpdateGPU(ctx, args[0], api.GPUUpdate{Policy: &value})
			})
			if err != nil {
				return err
			}
			return gpuAnswer.gpu(c.OutOrStdout(), fmt.Sprintf("gpu %s: policy %s", g.Name, g.Policy), g)
		},
	}
	vmAnswer.flags(vm)
	gpuAnswer.flags(gpu)
	return cli.NewGroup("set", "Change a guest or a GPU", vm, gpu)
}

// completePolicy completes a GPU's name and then the policies.
func completePolicy(o *options) cobra.CompletionFunc {
	gpus := completeGPUs(o)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return gpus(c, args, word)
		}
		names := fairshare.Names()
		for i, name := range names {
			names[i] = "policy=" + name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// parseVMUpdate parses assignments such as weight=4.
func parseVMUpdate(assignments []string) (u api.VMUpdate, err error) {
	for _, s := range assignments {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return u, cli.Usagef("%q: want KEY=VALUE", s)
		}
		switch key {
		case "weight":
			u.Weight, err = parseNumber(key, value)
		case "cap":
			u.Cap, err = parseRatio(key, value)
		case "guarantee":
			u.Guarantee, err = parseRatio(key, value)
		case "priority-ceiling":
			n, perr := strconv.Atoi(value)
			if perr != nil {
				return u, cli.Usagef("priority-ceiling %q: want a whole number", value)
			}
			u.PriorityCeiling = &n
		default:
			return u, cli.Usagef("%q: want weight, cap, guarantee or priority-ceiling", key)
		}
		if err != nil {
			return u, err
		}
	}
	// The unchanged terms are valid, so valid defaults stand for them.
	if err := u.Apply(api.Terms{Weight: 1}).Check(); err != nil {
		return u, cli.UsageError{Err: err}
	}
	return u, nil
}

func parseNumber(key, value string) (*float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return nil, cli.Usagef("%s %q: want a number", key, value)
	}
	return &x, nil
}

// parseRatio parses a part of the GPU's time: 0.25, 25% or none.
func parseRatio(key, value string) (*float64, error) {
	if value == "none" {
		return new(float64), nil
	}
	digits, percent := strings.CutSuffix(value, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return nil, cli.Usagef("%s %q: want a part of the GPU's time such as 0.25 or 25%%, or none", key, value)
	}
	if percent {
		x /= 100
	}
	return &x, nil
}

// updated formats the guest's changed terms.
func updated(v api.VM, u *api.VMUpdate) string {
	var s []string
	if u.Weight != nil {
		s = append(s, "weight "+number(v.Weight))
	}
	if u.Cap != nil {
		s = append(s, "cap "+ratio(v.Cap))
	}
	if u.Guarantee != nil {
		s = append(s, "guarantee "+ratio(v.Guarantee))
	}
	if u.PriorityCeiling != nil {
		s = append(s, "priority ceiling "+count(v.PriorityCeiling))
	}
	return strings.Join(s, ", ")
}
