package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

var vmColumns = []column[api.VM]{
	{"NAME", false, func(v api.VM) string { return v.Name }},
	{"GPU", false, func(v api.VM) string { return v.GPU }},
	{"WEIGHT", false, func(v api.VM) string { return number(v.Weight) }},
	{"STATE", false, state},
	{"SHARE", false, func(v api.VM) string { return percent(v.Share) }},
	{"ENTITLED", false, func(v api.VM) string { return percent(v.Entitled) }},
	{"GPU-SECONDS", false, func(v api.VM) string { return seconds(v.GPUSeconds) }},
	{"SUSPENDED", false, func(v api.VM) string { return seconds(v.SuspendedSeconds) }},
	{"KERNELS", false, func(v api.VM) string { return count(v.Kernels) }},
	{"EVICTIONS", false, func(v api.VM) string { return count(v.Preemption.Evictions) }},
	{"ERRORS", false, func(v api.VM) string { return count(v.Errors) }},
	{"DOMAIN", true, func(v api.VM) string { return v.Domain }},
	{"CAP", true, func(v api.VM) string { return ratio(v.Cap) }},
	{"GUARANTEE", true, func(v api.VM) string { return ratio(v.Guarantee) }},
	{"PRIORITY-CEILING", true, func(v api.VM) string { return count(v.PriorityCeiling) }},
	{"LAUNCHES", true, launches},
	{"CAUSED", true, func(v api.VM) string { return count(v.Preemption.Caused) }},
	{"CHARGED", true, func(v api.VM) string { return seconds(v.Preemption.ChargedSeconds) }},
	{"UNRESPONSIVE", true, func(v api.VM) string { return count(v.Preemption.Unresponsive) }},
	{"IGNORED-PRIORITIES", true, func(v api.VM) string { return count(v.Preemption.IgnoredPriorities) }},
	{"PREDICTION-ERROR", true, predictionError},
	{"CONTEXTS", true, func(v api.VM) string { return count(v.Contexts) }},
	{"COPIED-BYTES", true, func(v api.VM) string { return count(v.CopiedBytes) }},
	{"DOORBELLS", true, func(v api.VM) string { return count(v.Doorbells) }},
	{"PID", true, func(v api.VM) string { return count(v.PID) }},
	{"SOCKET", true, func(v api.VM) string { return v.Socket }},
}

// vmColumnsOf returns the columns for these guests. Columns on hardware control are included if the
// hardware controls one of them.
func vmColumnsOf(vms []api.VM) []column[api.VM] {
	columns := vmColumns
	if slices.ContainsFunc(vms, func(v api.VM) bool { return v.Silent != "" }) {
		columns = append(slices.Clone(vmColumns), column[api.VM]{"PROBLEM", false, func(v api.VM) string { return cmp.Or(v.Silent, "-") }})
	}
	if !slices.ContainsFunc(vms, func(v api.VM) bool { return v.Control.Contexts > 0 || v.Control.Disables > 0 }) {
		return columns
	}
	return slices.Concat(columns, controlColumns)
}

var controlColumns = []column[api.VM]{
	{"DISABLES", true, func(v api.VM) string { return count(v.Control.Disables) }},
	{"DISABLE-TIME", true, func(v api.VM) string { return mean(v.Control.DisableSeconds, v.Control.Disables) }},
	{"TIME-SLICE", true, func(v api.VM) string {
		if v.Control.TimeSliceSeconds == 0 {
			return "-"
		}
		return brief(v.Control.TimeSliceSeconds)
	}},
	{"CONTROL-ERRORS", true, func(v api.VM) string { return count(v.Control.Errors) }},
}

// mean formats the mean time of n events that took so many seconds together.
func mean(seconds float64, n uint64) string {
	if n == 0 {
		return "-"
	}
	return brief(seconds / float64(n))
}

// brief formats a short time, rounded to the microsecond.
func brief(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
}

// state returns a guest's state in one word.
func state(v api.VM) string {
	switch {
	case v.Silent != "":
		return "silent"
	case !v.Attached:
		return "detached"
	case v.Suspended:
		return "suspended"
	case v.Active:
		return "active"
	default:
		return "idle"
	}
}

// launches formats the numbers of a guest's waiting, running and evicted launches: 3/1/0.
func launches(v api.VM) string {
	l := v.Preemption.Launches
	return fmt.Sprintf("%d/%d/%d", l.Waiting, l.Running, l.Leaving)
}

// predictionError formats the relative error of predicted launch durations.
func predictionError(v api.VM) string {
	if v.Preemption.Prediction.Launches == 0 {
		return "-"
	}
	return percent(v.Preemption.Prediction.ErrorRatio)
}

var gpuColumns = []column[api.GPU]{
	{"NAME", false, func(g api.GPU) string { return g.Name }},
	{"MODEL", false, func(g api.GPU) string { return g.Model }},
	{"POLICY", false, func(g api.GPU) string { return g.Policy }},
	{"VMS", false, func(g api.GPU) string { return count(g.VMs) }},
	{"BUSY", false, func(g api.GPU) string { return percent(g.BusyRatio) }},
	{"BUSY-SECONDS", false, func(g api.GPU) string { return seconds(g.BusySeconds) }},
	{"SWITCHES", false, func(g api.GPU) string { return count(g.Switches) }},
	{"HEALTHY", false, func(g api.GPU) string { return yesNo(g.Healthy) }},
	{"KIND", true, func(g api.GPU) string { return g.Kind }},
	{"SMS", true, func(g api.GPU) string { return count(g.SMs) }},
	{"ACCOUNTING", true, func(g api.GPU) string { return g.AccountingSource }},
	{"ACCOUNTING-CPU", true, func(g api.GPU) string { return seconds(g.AccountingCPUSeconds) }},
	{"GAPS", true, func(g api.GPU) string { return count(g.Gaps) }},
	{"REAL-TIME", true, func(g api.GPU) string { return yesNo(g.RealTime) }},
	{"OVERRUNS", true, func(g api.GPU) string { return count(g.Overruns) }},
	{"EVICTIONS", true, func(g api.GPU) string { return count(g.Evictions.Count) }},
	{"EVICTION-P50", true, func(g api.GPU) string { return evictionTime(g, g.Evictions.P50) }},
	{"EVICTION-P99", true, func(g api.GPU) string { return evictionTime(g, g.Evictions.P99) }},
}

// gpuColumnsOf returns the columns for these GPUs. Columns on hardware are included if one of them
// is hardware.
func gpuColumnsOf(gpus []api.GPU) []column[api.GPU] {
	if !slices.ContainsFunc(gpus, func(g api.GPU) bool { return g.Hardware != nil }) {
		return gpuColumns
	}
	return slices.Concat(gpuColumns, hardwareColumns)
}

var hardwareColumns = []column[api.GPU]{
	{"TEMPERATURE", false, valueOf("°C", 1, func(h *api.Hardware) *float64 { return h.TemperatureCelsius })},
	{"POWER", false, valueOf("W", 1, func(h *api.Hardware) *float64 { return h.PowerWatts })},
	{"MEMORY-USED", false, func(g api.GPU) string {
		if g.Hardware == nil || g.Hardware.MemoryUsedBytes == nil || g.MemoryBytes == 0 {
			return "-"
		}
		return percent(float64(*g.Hardware.MemoryUsedBytes) / float64(g.MemoryBytes))
	}},
	{"XIDS", false, textOf(func(h *api.Hardware) string {
		var all []string
		for _, x := range h.Xids {
			all = append(all, fmt.Sprintf("%d×%d", x.Xid, x.Count))
		}
		return strings.Join(all, ",")
	})},
	{"CLOCK", true, valueOf("MHz", 1e6, func(h *api.Hardware) *float64 { return h.SMClockHertz })},
	{"THROTTLED", true, textOf(func(h *api.Hardware) string { return strings.Join(h.Throttled, ",") })},
	{"DRIVER", true, textOf(func(h *api.Hardware) string { return h.Driver })},
	{"CUDA", true, textOf(func(h *api.Hardware) string { return h.CUDA })},
	{"MIG", true, textOf(func(h *api.Hardware) string { return h.MIG })},
	{"PCI", true, textOf(func(h *api.Hardware) string { return h.PCI })},
	{"UUID", true, textOf(func(h *api.Hardware) string { return h.UUID })},
}

// textOf returns a function that formats a text of the driver's, or "-".
func textOf(text func(*api.Hardware) string) func(api.GPU) string {
	return func(g api.GPU) string {
		if g.Hardware == nil {
			return "-"
		}
		return cmp.Or(text(g.Hardware), "-")
	}
}

// valueOf returns a function that formats a value of the driver's in a unit, or "-".
func valueOf(unit string, of float64, value func(*api.Hardware) *float64) func(api.GPU) string {
	return textOf(func(h *api.Hardware) string {
		v := value(h)
		if v == nil {
			return ""
		}
		return fmt.Sprintf("%.0f %s", *v/of, unit)
	})
}

// evictionTime formats the time of an eviction.
func evictionTime(g api.GPU, seconds float64) string {
	if g.Evictions.Count == 0 {
		return "-"
	}
	return brief(seconds)
}

func newGet(o *options) *cobra.Command {
	var domain string
	vms := listing(o, "vms", []string{"vm"}, "List the guests with their shares", vmColumnsOf,
		vmName, func(c *api.Client, ctx context.Context) ([]api.VM, error) {
			if domain != "" {
				return c.DomainVMs(ctx, domain)
			}
			return c.VMs(ctx)
		})
	vms.Flags().StringVar(&domain, "domain", "", "only the guests of this libvirt domain, by name or UUID")
	return cli.NewGroup("get", "List guests or GPUs", vms,
		listing(o, "gpus", []string{"gpu"}, "List the physical GPUs", gpuColumnsOf,
			gpuName, (*api.Client).GPUs))
}

// listing returns a `get` command, which lists all items or the named one.
func listing[T any](o *options, use string, aliases []string, short string, columns func([]T) []column[T],
	name func(T) string, all func(*api.Client, context.Context) ([]T, error),
) *cobra.Command {
	f := newFormat()
	var watch bool
	var every time.Duration
	c := &cobra.Command{
		Use:     use + " [NAME]",
		Aliases: aliases,
		Short:   short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("want at most one name, got %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			show := func(w io.Writer) error {
				items, err := ask(c, o, all)
				if err != nil {
					return err
				}
				if len(args) == 1 {
					if items, err = named(items, name, use, args[0]); err != nil {
						return err
					}
				}
				return print(w, &f, columns(items), name, items)
			}
			if !watch {
				return show(c.OutOrStdout())
			}
			return repeat(c.Context(), c.OutOrStdout(), every, show)
		},
	}
	c.ValidArgsFunction = completeNames(o, all, name)
	f.Flags(c)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "repeat the list every --interval")
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two lists of --watch")
	return c
}

// named returns the item with that name.
func named[T any](items []T, name func(T) string, kind, want string) ([]T, error) {
	for _, it := range items {
		if name(it) == want {
			return []T{it}, nil
		}
	}
	return nil, fmt.Errorf("no %q among the %s; `vgpuctl get %s` lists them", want, kind, kind)
}

// repeat calls show again and again until ctx ends.
func repeat(ctx context.Context, w io.Writer, every time.Duration, show func(io.Writer) error) error {
	if every <= 0 {
		return cli.Usagef("interval %v: want more than 0", every)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := show(w); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
}
