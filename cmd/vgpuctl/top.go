package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// usage is a guest's use of its GPU between two samples.
type usage struct {
	Name      string  `json:"name"`
	GPU       string  `json:"gpu"`
	Weight    float64 `json:"weight"`
	State     string  `json:"state"`
	Busy      float64 `json:"busy"`  // of the time between the samples
	Share     float64 `json:"share"` // of what all guests of the GPU used
	Entitled  float64 `json:"entitled"`
	Suspended float64 `json:"suspended"` // of the time between the samples
	Kernels   float64 `json:"kernels_per_second"`
	Evictions float64 `json:"evictions_per_second"` // of its kernels
	Waiting   int     `json:"launches_waiting"`     // for their turn, now
}

var usageColumns = []column[usage]{
	{"NAME", false, func(u usage) string { return u.Name }},
	{"GPU", false, func(u usage) string { return u.GPU }},
	{"WEIGHT", false, func(u usage) string { return number(u.Weight) }},
	{"STATE", false, func(u usage) string { return u.State }},
	{"BUSY", false, func(u usage) string { return percent(u.Busy) }},
	{"SHARE", false, func(u usage) string { return percent(u.Share) }},
	{"ENTITLED", false, func(u usage) string { return percent(u.Entitled) }},
	{"SUSPENDED", false, func(u usage) string { return percent(u.Suspended) }},
	{"KERNELS/S", false, func(u usage) string { return fmt.Sprintf("%.1f", u.Kernels) }},
	{"EVICTIONS/S", false, func(u usage) string { return fmt.Sprintf("%.1f", u.Evictions) }},
	{"WAITING", false, func(u usage) string { return count(u.Waiting) }},
}

func newTop(o *options) *cobra.Command {
	f := newFormat()
	var every time.Duration
	var samples int
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the guests' use of the GPUs, again and again",
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			if every <= 0 {
				return cli.Usagef("interval %v: want more than 0", every)
			}
			if samples < 0 {
				return cli.Usagef("count %d: want 0 (no limit) or more", samples)
			}
			out := c.OutOrStdout()
			return top(c, o, every, samples, func(us []usage) error {
				return show(out, &f, us)
			})
		},
	}
	f.Flags(c)
	c.Flags().DurationVarP(&every, "interval", "d", time.Second, "time between two samples")
	c.Flags().IntVarP(&samples, "count", "n", 0, "stop after this many tables (default: no limit)")
	return c
}

// top calls show with the differences between samples, one every so often, count times or (0) until
// the command's context ends.
func top(c *cobra.Command, o *options, every time.Duration, count int, show func([]usage) error) error {
	before, err := ask(c, o, (*api.Client).VMs)
	if err != nil {
		return err
	}
	t := time.NewTicker(every)
	defer t.Stop()
	at := time.Now()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-c.Context().Done():
			return nil
		case <-t.C:
		}
		now, err := ask(c, o, (*api.Client).VMs)
		if err != nil {
			return err
		}
		elapsed := time.Since(at)
		at = at.Add(elapsed)
		if err := show(between(before, now, elapsed)); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// between returns what each guest used between two samples, the busiest first.
func between(before, now []api.VM, elapsed time.Duration) []usage {
	total := make(map[string]float64) // by GPU
	us := make([]usage, 0, len(now))
	for _, v := range now {
		old := v // a new guest has used nothing yet
		if i := slices.IndexFunc(before, func(b api.VM) bool { return b.Name == v.Name }); i >= 0 {
			old = before[i]
		}
		used := max(v.GPUSeconds-old.GPUSeconds, 0)
		total[v.GPU] += used
		us = append(us, usage{
			Name: v.Name, GPU: v.GPU, Weight: v.Weight, State: state(v), Entitled: v.Entitled,
			Busy: used / elapsed.Seconds(), Share: used,
			Suspended: min(max(v.SuspendedSeconds-old.SuspendedSeconds, 0)/elapsed.Seconds(), 1),
			Kernels:   float64(v.Kernels-min(old.Kernels, v.Kernels)) / elapsed.Seconds(),
			Evictions: float64(v.Preemption.Evictions-min(old.Preemption.Evictions, v.Preemption.Evictions)) / elapsed.Seconds(),
			Waiting:   v.Preemption.Launches.Waiting,
		})
	}
	for i := range us {
		if t := total[us[i].GPU]; t > 0 {
			us[i].Share /= t
		}
	}
	slices.SortStableFunc(us, func(a, b usage) int { return cmp.Compare(b.Busy, a.Busy) })
	return us
}

// show prints one table, over the last one if the output is a terminal.
func show(out io.Writer, f *output.Format, us []usage) error {
	var b bytes.Buffer
	if f.Kind == "table" || f.Kind == "wide" {
		if terminal(out) {
			b.WriteString("\x1b[H\x1b[2J")
		}
	}
	if err := print(&b, f, usageColumns, func(u usage) string { return u.Name }, us); err != nil {
		return err
	}
	_, err := out.Write(b.Bytes())
	return err
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
