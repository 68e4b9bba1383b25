package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newTop(o *options) *cobra.Command {
	f := newFormat()
	var every time.Duration
	var samples int
	var batch bool
	var by string
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the guests' use of the GPUs, again and again",
		Long: `Show the guests' use of the GPUs, again and again: in a terminal on a screen of its own,
else, or with --batch, --count or --output, as one table after the other.

SHARE, ENTITLED and SUSPENDED are parts of the time since the last look: what the guest used
of the GPU's time, what its weight, cap and guarantee entitle it to among the guests that
have work, and how long it was suspended. On the screen a mark in each bar shows what the
guest is entitled to.

Keys: arrows or j and k select a guest, Enter shows its details, Esc goes back; N, S, E, U,
K and M sort by name, share, entitlement, suspended time, kernels and memory; r reverses
the order; Space pauses; q quits. Without colours if NO_COLOR is set.`,
		Args: cli.NoArgs,
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
			order, err := parseOrder(by)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			plain := batch || samples > 0 || c.Flags().Changed("output") || c.Flags().Changed("no-headers")
			if !plain && terminal(out) && terminal(c.InOrStdin()) {
				return runScreen(c, o, every, order)
			}
			first := true
			return top(c, o, every, samples, func(us []usage) error {
				sortUsage(us, order, false)
				var b bytes.Buffer
				if !first && (f.Kind == "table" || f.Kind == "wide") {
					b.WriteByte('\n')
				}
				first = false
				if err := usageTable.print(&b, &f, us); err != nil {
					return err
				}
				_, err := out.Write(b.Bytes())
				return err
			})
		},
	}
	f.Flags(c)
	c.Flags().DurationVarP(&every, "interval", "d", time.Second, "time between two samples")
	c.Flags().IntVarP(&samples, "count", "n", 0, "stop after this many tables (default: no limit)")
	c.Flags().BoolVarP(&batch, "batch", "b", false, "print tables even in a terminal")
	c.Flags().StringVar(&by, "sort", orders[byShare].name, "order: "+orderNames())
	cli.CompleteFlag(c, "sort", orderNameList()...)
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

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func perSecond(x float64) string { return fmt.Sprintf("%.1f", x) }
