package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/driver"
)

type checkOptions struct {
	output.Format
	count    int
	parts    bool
	byAgent  bool
	vfioUser string
	limit    time.Duration
}

func newCheck(o *options) *cobra.Command {
	k := checkOptions{Format: newFormat()}
	c := &cobra.Command{
		Use:   "check [DEVICE... | PROGRAM...]",
		Short: "Run a kernel on each virtual GPU and check its results, or examine programs",
		Long: `check runs a small kernel on each virtual GPU, or on the given ones, checks its results,
and times launches of an empty kernel. The exit status is 1 if a check fails or there is
no virtual GPU.

A device that programs already share is checked as a further program. With --parts the
steps of a launch are timed one by one, as far as the guest can see them.

An argument that is no PCI address is a program file. check reads it, without running
anything: which of CUDA's libraries it needs, whether it has the shared runtime or NVIDIA's
static one, whether it will run here and why not, and which of its kernels become
preemptible. The exit status is 1 if a program will not run.`,
		Example:           "  vgpu-agent check\n  vgpu-agent check 0000:01:00.0\n  vgpu-agent check -o json ./simulation",
		ValidArgsFunction: completeDevicesOrFiles(o),
		RunE:              func(c *cobra.Command, args []string) error { return check(c.Context(), c.OutOrStdout(), o, &k, args) },
	}
	k.Flags(c)
	f := c.Flags()
	f.IntVarP(&k.count, "count", "n", 100, "launches to time")
	f.BoolVar(&k.parts, "parts", false, "also time the steps of a launch")
	f.BoolVar(&k.byAgent, "shared", false, "use the daemon even if no program has the device")
	f.StringVar(&k.vfioUser, "vfio-user", "", "check the device at a vfio-user socket, without a VMM, instead of a PCI function")
	f.DurationVar(&k.limit, "timeout", 2*time.Minute, "time limit")
	return c
}

func check(ctx context.Context, w io.Writer, o *options, k *checkOptions, addresses []string) error {
	if err := k.Check(); err != nil {
		return err
	}
	const most = 1e6
	if k.count < 1 || k.count > most {
		return cli.Usagef("count %d: want from 1 to %g", k.count, float64(most))
	}
	p, err := o.pci()
	if err != nil {
		return err
	}
	programs, err := programsIn(addresses)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, k.limit, fmt.Errorf("no answer within %v", k.limit))
	defer cancel()
	if programs {
		return checkPrograms(ctx, w, k, addresses)
	}
	if k.vfioUser != "" {
		addresses = []string{k.vfioUser}
	} else if len(addresses) == 0 {
		all, err := agent.List(p)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%w: no PCI function is %v; does the VM have one?", driver.ErrNoDevice, driver.IDs)
		}
		for _, d := range all {
			addresses = append(addresses, d.Address)
		}
	}
	results := make([]agent.CheckResult, len(addresses))
	failed := 0
	for i, address := range addresses {
		results[i] = agent.CheckBus(ctx, address, k.opener(o, p), agent.CheckOptions{Count: k.count, Parts: k.parts})
		if !results[i].OK {
			failed++
		}
	}
	if err := k.print(w, results); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d virtual GPUs failed the check", failed, len(results))
	}
	return nil
}

// opener returns a function that opens a device as the flags say.
func (k *checkOptions) opener(o *options, p driver.PCI) func(ctx context.Context, address string) (driver.Bus, error) {
	return func(ctx context.Context, address string) (driver.Bus, error) {
		if k.vfioUser != "" {
			return driver.DialVFIOUser(ctx, address)
		}
		if !k.byAgent {
			p.BusyTimeout = -1 // a busy device is shared by the daemon
			bus, err := driver.OpenPCI(ctx, p, address)
			if err == nil {
				return bus, nil
			}
			if !errors.Is(err, driver.ErrBusy) {
				return nil, err
			}
		}
		bus, err := driver.DialAgent(ctx, driver.AgentOptions{Socket: o.socket, Address: address})
		if err != nil {
			return nil, err
		}
		return bus, nil
	}
}

func (k *checkOptions) print(w io.Writer, results []agent.CheckResult) error {
	if k.Kind == "json" {
		return output.JSON(w, results)
	}
	var rows [][]string
	for _, r := range results {
		row := []string{r.Address, "ok", r.Access, fmt.Sprint(r.Vectors), "-", "-", output.OrDash(r.GPU)}
		if !r.OK {
			row[1], row[6] = "FAILED", r.Error
		}
		row[2] = output.OrDash(r.Access)
		if r.Launch != nil {
			row[4], row[5] = short(r.Launch.P50), short(r.Launch.P99)
		}
		rows = append(rows, row)
	}
	if err := k.Table(w, []string{"DEVICE", "RESULT", "ACCESS", "VECTORS", "LAUNCH P50", "P99", "GPU"}, rows); err != nil {
		return err
	}
	for _, r := range results {
		if err := k.printParts(w, r); err != nil {
			return err
		}
	}
	return nil
}

func (k *checkOptions) printParts(w io.Writer, r agent.CheckResult) error {
	if len(r.Parts) == 0 {
		return nil
	}
	var rows [][]string
	for _, p := range r.Parts {
		rows = append(rows, []string{p.Name, short(p.P50), short(p.P99), p.Description})
	}
	for _, l := range r.Launches {
		what := fmt.Sprintf("launch to completion, waiting by %s, back to back, %d doorbells", l.Wait, l.Doorbells)
		if l.Pause > 0 {
			what = fmt.Sprintf("launch to completion, waiting by %s, every %v, %d doorbells", l.Wait, l.Pause, l.Doorbells)
		}
		rows = append(rows, []string{"launch", short(l.P50), short(l.P99), what})
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", r.Address); err != nil {
		return err
	}
	return k.Table(w, []string{"PART", "P50", "P99", "WHAT"}, rows)
}

// short formats a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Millisecond || d <= -time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= 10*time.Microsecond || d <= -10*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.String()
}
