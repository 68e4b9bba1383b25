package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/vgpuctl/internal/fleet"
	"vgpud/mediator/api"
)

// fleetAtOnce is how many hosts are asked at a time.
const fleetAtOnce = 32

var fleetTable = table[fleet.Host]{columns: func([]fleet.Host) []column[fleet.Host] { return fleetColumns }, name: func(h fleet.Host) string { return h.Name }}

var fleetColumns = slices.Concat([]column[fleet.Host]{
	textColumn("HOST", func(h fleet.Host) string { return h.Name }),
	textColumn("STATUS", hostStatus),
	countColumn("GPUS", func(h fleet.Host) int { return h.GPUs }),
	countColumn("VMS", func(h fleet.Host) int { return h.VMs }),
	countColumn("SHARES", func(h fleet.Host) int { return h.Shares }),
	countColumn("GIVEN", func(h fleet.Host) int { return h.GivenShares }),
	numberColumn("USED", oneDecimal, func(h fleet.Host) float64 { return h.UsedShares }),
}, inWide(
	bytesColumn("MEMORY", "-", func(h fleet.Host) uint64 { return h.MemoryBytes }),
	bytesColumn("MEMORY-GIVEN", "-", func(h fleet.Host) uint64 { return h.GivenMemoryBytes }),
))

func oneDecimal(x float64) string { return fmt.Sprintf("%.1f", x) }

// hostStatus says in words how a host's GPUs are.
func hostStatus(h fleet.Host) string {
	var parts []string
	if h.Problem != "" {
		return "no answer"
	}
	if h.Sick > 0 {
		parts = append(parts, fmt.Sprintf("%d sick", h.Sick))
	}
	if h.Closed > 0 {
		parts = append(parts, fmt.Sprintf("%d cordoned", h.Closed))
	}
	if len(parts) == 0 {
		return "healthy"
	}
	return strings.Join(parts, ",")
}

var projectTable = table[fleet.Project]{columns: func([]fleet.Project) []column[fleet.Project] { return projectColumns }, name: func(p fleet.Project) string { return p.Name }}

var projectColumns = []column[fleet.Project]{
	textColumn("PROJECT", func(p fleet.Project) string { return p.Name }),
	countColumn("HOSTS", func(p fleet.Project) int { return p.Hosts }),
	countColumn("VMS", func(p fleet.Project) int { return p.VMs }),
	countColumn("GIVEN", func(p fleet.Project) int { return p.GivenShares }),
	numberColumn("USED", oneDecimal, func(p fleet.Project) float64 { return p.UsedShares }),
	bytesColumn("MEMORY-GIVEN", "-", func(p fleet.Project) uint64 { return p.GivenMemoryBytes }),
	textColumn("BUDGETS", func(p fleet.Project) string {
		var all []string
		for _, b := range p.Budgets {
			all = append(all, b.String())
		}
		return strings.Join(all, ", ")
	}),
}

// fleetFlags say which hosts are meant, and where what they say is read.
type fleetFlags struct {
	names      []string
	prometheus string // "" asks the hosts' daemons
	job        string
}

func newFleet(o *options) *cobra.Command {
	var w fleetFlags
	hosts := fleetListing("hosts", "List the hosts with the shares of their GPUs", o, &w, fleetTable, fleet.Hosts)
	projects := fleetListing("projects", "List what each project's guests have on all hosts", o, &w, projectTable, fleet.Projects)
	projects.Long = `List what each project's guests have on all hosts. Budgets are the sums of the guests' own, by
period: what they have used in the present one, of their hard limits.`
	projects.Example = "  vgpuctl fleet projects --prometheus http://prometheus:9090"
	all := cli.NewGroup("fleet", "Show many hosts at once", hosts, projects, newFleetUsage(o, &w))
	all.Long = `Show many hosts at once: those of the configuration file, or of --hosts, over TLS. With
--prometheus nobody asks them: what Prometheus read of them last is shown, of all targets of
its job, by the target's name.

Shares are hundredths of a GPU. GIVEN are the shares that guests have by their weights and
guarantees, placed by OpenStack or not, and USED what they used lately. A host that does
not answer is named, and makes the exit status 1.`
	all.PersistentFlags().StringVar(&w.prometheus, "prometheus", "", "read what Prometheus at this `URL` knows of the hosts")
	all.PersistentFlags().StringVar(&w.job, "job", "vgpud", "the job by which Prometheus scrapes the hosts' daemons")
	all.PersistentFlags().StringSliceVar(&w.names, "hosts", nil, "only these hosts: `names` from the configuration file, or https://NAME:PORT")
	return all
}

// fleetListing returns a command that lists what the answers of all hosts sum up to.
func fleetListing[T any](use, short string, o *options, w *fleetFlags, t table[T], sum func([]fleet.Answer) []T) *cobra.Command {
	f := newFormat()
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			all, err := w.answers(c.Context(), o)
			if err != nil {
				return err
			}
			var silent []error
			for _, a := range all {
				if a.Err != nil {
					silent = append(silent, fmt.Errorf("%s: %w", a.Host, a.Err))
				}
			}
			return errors.Join(append([]error{t.print(c.OutOrStdout(), &f, sum(all))}, silent...)...)
		},
	}
	f.Flags(c)
	return c
}

// answers returns what the hosts' daemons say, by host.
func (w *fleetFlags) answers(ctx context.Context, o *options) ([]fleet.Answer, error) {
	if w.prometheus != "" {
		return w.fromPrometheus(ctx, o)
	}
	answers, err := askFleet(ctx, o, w.names, func(ctx context.Context, client *api.Client) (a fleet.Answer, err error) {
		a.GPUs, err = client.GPUs(ctx)
		if err == nil {
			a.VMs, err = client.VMs(ctx)
		}
		return a, err
	})
	if err != nil {
		return nil, err
	}
	all := make([]fleet.Answer, 0, len(answers))
	for name, a := range answers {
		a.value.Host, a.value.Err = name, a.err
		if a.err != nil {
			a.value.GPUs, a.value.VMs = nil, nil
		}
		all = append(all, a.value)
	}
	slices.SortFunc(all, func(a, b fleet.Answer) int { return strings.Compare(a.Host, b.Host) })
	return all, nil
}

func newFleetUsage(o *options, w *fleetFlags) *cobra.Command {
	var q api.UsageQuery
	f := output.Format{Kinds: []string{"table", "csv", "json", "yaml", output.KindPath}}
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what guests used on all hosts",
		Long: `Show the sum of what all hosts have recorded. An instance that was on several hosts is one
line, by its UUID. "vgpuctl usage --help" explains the flags. If a host does not answer, its
part is missing, and the exit status is 1.`,
		Example: "  vgpuctl fleet usage --from 2026-11 --by project",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			if w.prometheus != "" {
				return cli.Usagef("usage is summed up from what the hosts have recorded, which Prometheus does not have: leave --prometheus out")
			}
			answers, err := askFleet(c.Context(), o, w.names, func(ctx context.Context, client *api.Client) (api.Usage, error) { return client.Usage(ctx, q) })
			if err != nil {
				return err
			}
			records := make(map[string]api.Usage)
			var silent []error
			for _, name := range slices.Sorted(maps.Keys(answers)) {
				if a := answers[name]; a.err != nil {
					silent = append(silent, fmt.Errorf("%s is not counted: %w", name, a.err))
				} else {
					records[name] = a.value
				}
			}
			if len(records) == 0 {
				return errors.Join(silent...)
			}
			u := fleet.Usage(records)
			return errors.Join(append([]error{printUsage(c.OutOrStdout(), &f, &u)}, silent...)...)
		},
	}
	f.Flags(c)
	usageFlags(c, &q)
	return c
}

// fleetAnswer is what one host answered.
type fleetAnswer[T any] struct {
	value T
	err   error
}

// askFleet asks hosts by name, or all of the configuration.
func askFleet[T any](ctx context.Context, o *options, names []string, f func(context.Context, *api.Client) (T, error)) (map[string]fleetAnswer[T], error) {
	if o.flags.Changed("socket") || o.flags.Changed("host") {
		return nil, cli.Usagef("fleet asks many hosts: name them with --hosts, not with --host or --socket")
	}
	hosts, err := o.fleet(names)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	answers := make(map[string]fleetAnswer[T], len(hosts))
	var group errgroup.Group
	group.SetLimit(fleetAtOnce)
	for name, r := range hosts {
		group.Go(func() error {
			var a fleetAnswer[T]
			a.value, a.err = askHost(ctx, r, f)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = a
			return nil
		})
	}
	return answers, group.Wait()
}

func askHost[T any](ctx context.Context, r *remote, f func(context.Context, *api.Client) (T, error)) (v T, err error) {
	client, err := r.client()
	if err != nil {
		return v, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return f(ctx, client)
}
