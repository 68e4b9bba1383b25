package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

func newGet(o *options) *cobra.Command {
	var domain string
	vms := listing(o, "vms", []string{"vm"}, "List the guests with their shares", vmTable, func(c *api.Client, ctx context.Context) ([]api.VM, error) {
		if domain != "" {
			return c.DomainVMs(ctx, domain)
		}
		return c.VMs(ctx)
	})
	vms.Long = `List the guests with their shares. SHARE, ENTITLED, CAP and GUARANTEE are parts of the
GPU's time: SHARE is what the guest used lately, ENTITLED what its weight, cap and
guarantee give it among the guests that have work. "vgpuctl describe vm" shows more.`
	vms.Flags().StringVar(&domain, "domain", "", "only the guests of this libvirt domain, by name or UUID")
	gpus := listing(o, "gpus", []string{"gpu"}, "List the physical GPUs", gpuTable, (*api.Client).GPUs)
	tasks := listing(o, "tasks", []string{"task"}, "List the contexts of guests that float", taskTable, func(c *api.Client, ctx context.Context) ([]api.Task, error) {
		t, err := c.Tasks(ctx)
		return t.Tasks, err
	})
	tasks.Long = `List the contexts of guests that float (vgpuctl create vm --float): where each was placed,
with which memory, or why it waits. Their names are those of their guests and the
contexts' numbers there.`
	events := listing(o, "events", []string{"event"}, "List the guests' event kernels", eventKernelTable, (*api.Client).EventKernels)
	events.Long = `List the kernels that guests have registered to be launched by a store (docs/device.md,
"Event kernels"): what launches their events, whether the GPU polls for them (resident) or
waits to be woken (parked), how many events ended, how many rings found no free entry, and
within what time half and 99 % of the events ended. Their names are those of their guests
and their numbers there. "vgpuctl events" shows what happened on the host.`
	for _, c := range []*cobra.Command{vms, gpus, tasks, events} {
		c.Example = "  vgpuctl get " + c.Name() + " -o wide\n  vgpuctl get " + c.Name() + ` -o jsonpath='{range [*]}{.name}{"\n"}{end}'`
	}
	tasks.Example = "  vgpuctl get tasks -o wide\n  vgpuctl get tasks --watch"
	return cli.NewGroup("get", "List guests, GPUs, tasks or event kernels", vms, gpus, tasks, events)
}

// listing returns a `get` command, which lists all items or the named one.
func listing[T any](o *options, use string, aliases []string, short string, t table[T],
	all func(*api.Client, context.Context) ([]T, error),
) *cobra.Command {
	f := newFormat()
	var watching bool
	var every time.Duration
	c := &cobra.Command{
		Use:     use + " [NAME]",
		Aliases: aliases,
		Short:   short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) <= 1 {
				return nil
			}
			return cli.Usagef("want at most one name, got %d", len(args))
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			fetch := func() ([]T, error) {
				items, err := ask(c, o, all)
				if err == nil && len(args) == 1 {
					items, err = named(items, t.name, use, args[0])
				}
				return items, err
			}
			w := c.OutOrStdout()
			if watching {
				return watch(c.Context(), w, &f, &t, every, fetch)
			}
			items, err := fetch()
			if err != nil {
				return err
			}
			return printListed(w, &f, &t, items, len(args) == 1)
		},
	}
	c.ValidArgsFunction = completeNames(o, all, t.name)
	f.Flags(c)
	c.Flags().BoolVarP(&watching, "watch", "w", false, "after the list, print what changes, every --interval")
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two looks of --watch")
	return c
}

// printListed prints items, or the one that was named.
func printListed[T any](w io.Writer, f *output.Format, t *table[T], items []T, one bool) error {
	if one {
		return t.printOne(w, f, items[0])
	}
	return t.print(w, f, items)
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
