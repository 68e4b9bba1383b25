package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// costFormat is the format of costs.
const costFormat = "opencost"

func newUsage(o *options) *cobra.Command {
	var q api.UsageQuery
	f := output.Format{Kinds: []string{"table", "csv", "json", "yaml", output.KindPath, costFormat}}
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what guests used of the GPUs, also guests that are gone",
		Long: `Show what guests used of the GPUs from one time to another, for bills. Guests that are
gone, and restarts of guests, the daemon and the host, change nothing of it.

Times are dates or times such as 2026-11-01 or 2026-11-01T08:00 (UTC, unless a zone such
as +01:00 follows), months such as 2026-11, ages such as 36h or 7d, today, yesterday or
now. Days are those of UTC.

-o opencost writes costs, as OpenCost's custom cost plugins return them, one response for
each day or hour.`,
		Example: `  vgpuctl usage --from 2026-11 --by project
  vgpuctl usage --from 7d --by day --owner alice -o csv
  vgpuctl usage --from 2026-11-01 --to 2026-12-01 -o opencost --gpu-hour-price 1.80 --currency EUR`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			for _, name := range []string{"gpu-hour-price", "currency", "resolution"} {
				if c.Flags().Changed(name) && f.Kind != costFormat {
					return cli.Usagef("--%s: only with -o %s", name, costFormat)
				}
			}
			if f.Kind == costFormat {
				costs, err := ask(c, o, func(client *api.Client, ctx context.Context) (json.RawMessage, error) {
					return client.UsageCosts(ctx, q)
				})
				if err != nil {
					return err
				}
				return output.JSON(c.OutOrStdout(), costs)
			}
			u, err := ask(c, o, func(client *api.Client, ctx context.Context) (api.Usage, error) { return client.Usage(ctx, q) })
			if err != nil {
				return err
			}
			if len(u.Rows) == 0 && (q.VM != "" || q.Domain != "" || q.Owner != "" || q.Project != "" || q.GPU != "") {
				// Perhaps it is misspelled.
				if _, err := fmt.Fprintf(c.ErrOrStderr(), "%s: nothing that matches is recorded in this time; `%s` without --vm, --domain, --owner, --project and --gpu lists what there is\n", c.Root().Name(), c.CommandPath()); err != nil {
					return err
				}
			}
			return printUsage(c.OutOrStdout(), &f, &u)
		},
	}
	f.Flags(c)
	usageFlags(c, &q)
	flags := c.Flags()
	flags.Float64Var(&q.GPUHourPrice, "gpu-hour-price", 0, "for -o opencost: what an hour of compute time costs")
	flags.StringVar(&q.Currency, "currency", "", "for -o opencost: the price's currency (USD)")
	flags.StringVar(&q.Resolution, "resolution", "", "for -o opencost: day or hour (day)")
	cli.CompleteFlag(c, "resolution", "day", "hour")
	return c
}

// usageFlags adds the flags that say which usage is asked for.
func usageFlags(c *cobra.Command, q *api.UsageQuery) {
	flags := c.Flags()
	flags.StringVar(&q.From, "from", "30d", "the `time` from which on usage counts")
	flags.StringVar(&q.To, "to", "now", "the `time` before which usage counts")
	flags.StringVar(&q.By, "by", "vm", "what rows stand for: vm, domain, owner, project, gpu or day")
	flags.StringVar(&q.VM, "vm", "", "only this guest")
	flags.StringVar(&q.Domain, "domain", "", "only this libvirt domain, by name or UUID")
	flags.StringVar(&q.Owner, "owner", "", "only this owner's guests")
	flags.StringVar(&q.Project, "project", "", "only this project's guests")
	flags.StringVar(&q.GPU, "gpu", "", "only this GPU")
	cli.CompleteFlag(c, "by", "vm", "domain", "owner", "project", "gpu", "day")
}

// usageKey is a column that says what a row stands for. Wide ones are for CSV alone.
type usageKey struct {
	head  string
	wide  bool
	value func(api.UsageRow) string
}

// usageKeys are the columns that say what a row stands for, by kind.
var usageKeys = map[string][]usageKey{
	"vm": {
		{"VM", false, func(r api.UsageRow) string { return r.VM }},
		{"DOMAIN", false, func(r api.UsageRow) string { return r.Domain }},
		{"DOMAIN-UUID", true, func(r api.UsageRow) string { return r.DomainUUID }},
		{"OWNER", false, func(r api.UsageRow) string { return r.Owner }},
		{"PROJECT", true, func(r api.UsageRow) string { return r.Project }},
	},
	"domain": {
		{"DOMAIN", false, func(r api.UsageRow) string { return r.Domain }},
		{"DOMAIN-UUID", true, func(r api.UsageRow) string { return r.DomainUUID }},
		{"OWNER", false, func(r api.UsageRow) string { return r.Owner }},
		{"PROJECT", true, func(r api.UsageRow) string { return r.Project }},
	},
	"owner":   {{"OWNER", false, func(r api.UsageRow) string { return r.Owner }}},
	"project": {{"PROJECT", false, func(r api.UsageRow) string { return r.Project }}},
	"gpu":     {{"GPU", false, func(r api.UsageRow) string { return r.GPU }}},
	"day":     {{"DAY", false, func(r api.UsageRow) string { return r.Day }}},
}

// usageSums are the columns with sums; a table has the last one only if there is anything in it. CSV
// has their exact values under other names.
var usageSums = []struct {
	head, csv    string
	shown, exact func(api.UsageSums) string
}{
	{"GPU-SECONDS", "gpu_seconds", func(u api.UsageSums) string { return centiseconds(u.GPUSeconds) }, func(u api.UsageSums) string { return exact(u.GPUSeconds) }},
	{"KERNELS", "kernels", func(u api.UsageSums) string { return fmt.Sprint(u.Kernels) }, func(u api.UsageSums) string { return fmt.Sprint(u.Kernels) }},
	{"EVICTIONS", "evictions", func(u api.UsageSums) string { return fmt.Sprint(u.Evictions) }, func(u api.UsageSums) string { return fmt.Sprint(u.Evictions) }},
	{"SUSPENDED", "suspended_seconds", func(u api.UsageSums) string { return centiseconds(u.SuspendedSeconds) }, func(u api.UsageSums) string { return exact(u.SuspendedSeconds) }},
	{"GIB-HOURS", "memory_byte_seconds", func(u api.UsageSums) string { return fmt.Sprintf("%.2f", u.MemoryByteSeconds/(1<<30)/3600) }, func(u api.UsageSums) string { return exact(u.MemoryByteSeconds) }},
	{"ENERGY", "energy_joules", func(u api.UsageSums) string {
		if u.EnergyJoules == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f kWh", *u.EnergyJoules/3.6e6)
	}, func(u api.UsageSums) string {
		if u.EnergyJoules == nil {
			return ""
		}
		return exact(*u.EnergyJoules)
	}},
	{"UNACCOUNTED", "unaccounted_seconds", func(u api.UsageSums) string { return centiseconds(u.UnaccountedSeconds) }, func(u api.UsageSums) string { return exact(u.UnaccountedSeconds) }},
}

func centiseconds(x float64) string { return fmt.Sprintf("%.2f", x) }

func exact(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// printUsage writes a usage in the format.
func printUsage(w io.Writer, f *output.Format, u *api.Usage) error {
	if done, err := f.Encode(w, u); done {
		return err
	}
	keys, ok := usageKeys[u.By]
	if !ok {
		return fmt.Errorf("the answer's rows stand for %.40q, which this version does not know: use that of the daemon's host", u.By)
	}
	if f.Kind == "csv" {
		return printUsageCSV(w, f, u)
	}
	var heads []string
	for _, k := range keys {
		if !k.wide {
			heads = append(heads, k.head)
		}
	}
	sums := usageSums
	if u.Total.UnaccountedSeconds == 0 { // as nearly always
		sums = sums[:len(sums)-1]
	}
	for _, s := range sums {
		heads = append(heads, s.head)
	}
	shown := func(u api.UsageSums) (cells []string) {
		for _, s := range sums {
			cells = append(cells, s.shown(u))
		}
		return cells
	}
	rows := make([][]string, 0, len(u.Rows)+1)
	for _, r := range u.Rows {
		var cells []string
		for _, k := range keys {
			if !k.wide {
				cells = append(cells, output.OrDash(k.value(r)))
			}
		}
		rows = append(rows, append(cells, shown(r.UsageSums)...))
	}
	total := make([]string, len(heads)-len(sums))
	total[0] = "total"
	rows = append(rows, append(total, shown(u.Total)...))
	if !f.NoHeaders {
		if _, err := fmt.Fprintf(w, "from %s to %s\n", u.From.Format(time.RFC3339), u.To.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return f.Table(w, heads, rows)
}

// printUsageCSV writes a usage as CSV.
func printUsageCSV(w io.Writer, f *output.Format, u *api.Usage) error {
	keys := usageKeys[u.By]
	var heads []string
	for _, k := range keys {
		heads = append(heads, strings.ToLower(strings.ReplaceAll(k.head, "-", "_")))
	}
	for _, s := range usageSums {
		heads = append(heads, s.csv)
	}
	if f.NoHeaders {
		heads = nil
	}
	var rows [][]string
	for _, r := range u.Rows {
		var cells []string
		for _, k := range keys {
			cells = append(cells, k.value(r))
		}
		for _, s := range usageSums {
			cells = append(cells, s.exact(r.UsageSums))
		}
		rows = append(rows, cells)
	}
	return output.CSV(w, heads, rows)
}
