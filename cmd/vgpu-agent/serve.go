package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/systemd"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
)

type serveOptions struct {
	group   string
	noCheck bool
	verbose bool
	kernels string
	preempt string
	wanted  allot.Preempt
}

// The values of --preempt.
const (
	preemptOn  = "on"
	preemptOff = "off"
)

func newServe(o *options) *cobra.Command {
	var s serveOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "Prepare virtual GPUs as they come, and share them, until told to end",
		Long: `serve prepares the virtual GPUs there are and those that are plugged later,
and shares them with the programs that connect to its socket. It logs one event a
line on standard error. Under systemd it says when it is ready and feeds the
watchdog.

Programs that share a device have their kernels made preemptible, where the host
takes such launches, each in the form that leaves the soonest of those that cost next
to nothing, or else in the cheapest that leaves the GPU within --preempt-latency. What they learn about kernels is kept in the file --kernels.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c.Context(), o, &s) },
	}
	f := c.Flags()
	f.StringVar(&s.group, "group", "", "group, by name or number, that may use the devices and the socket (default: root alone)")
	f.BoolVar(&s.noCheck, "no-check", false, "don't run a kernel on devices that come")
	f.StringVar(&s.kernels, "kernels", cache.DefaultPath, "the file in which what is learned of kernels is kept; empty: nowhere")
	f.StringVar(&s.preempt, "preempt", preemptOn, "make kernels of programs that share a device preemptible: on, off")
	f.DurationVar(&s.wanted.Latency, "preempt-latency", tune.DefaultLatency, "within what time a kernel should leave the GPU when asked")
	f.Float64Var(&s.wanted.Overhead, "preempt-overhead", tune.DefaultOverhead, "what that may cost at most, as a part of the kernel's time")
	complete(c, "preempt", []string{preemptOn, preemptOff})
	f.BoolVar(&s.verbose, "verbose", false, "log more")
	return c
}

func serve(ctx context.Context, o *options, s *serveOptions) error {
	p, err := o.pci()
	if err != nil {
		return err
	}
	gid, err := groupID(s.group)
	if err != nil {
		return err
	}
	log := newLog(s.verbose)
	if err := s.check(); err != nil {
		return err
	}
	kernels := openKernels(s.kernels, log)
	watchdog := systemd.Watchdog()
	a := agent.New(agent.Options{
		PCI: p, GID: gid, NoCheck: s.noCheck, Log: log,
		Alive:   func() { systemd.TryNotify(log, "WATCHDOG=1") },
		Beat:    watchdog / 3,
		Kernels: kernels, Preempt: s.wanted,
	})
	l, err := a.Listen(o.socket)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Serve(ctx, l) })
	g.Go(func() error { return a.Run(ctx, func() { systemd.TryNotify(log, "READY=1") }) })
	g.Go(func() error {
		<-ctx.Done()
		log.Info("ending")
		systemd.TryNotify(log, "STOPPING=1")
		return nil
	})
	err = g.Wait()
	if kernels != nil { // programs may have learned something while they were sent away
		if err := kernels.Save(); err != nil {
			log.Error("save what was learned of kernels", "err", err)
		}
	}
	return err
}

// check checks what is wanted of preemptible kernels.
func (s *serveOptions) check() error {
	switch {
	case s.preempt != preemptOn && s.preempt != preemptOff:
		return cli.Usagef("preempt %q: want on or off", s.preempt)
	case s.wanted.Latency <= 0:
		return cli.Usagef("preempt-latency %v: want more than 0", s.wanted.Latency)
	case !(s.wanted.Overhead > 0 && s.wanted.Overhead <= 10):
		return cli.Usagef("preempt-overhead %v: want a part, such as 0.02 for a fiftieth, up to 10", s.wanted.Overhead)
	}
	s.wanted.Off = s.preempt == preemptOff
	return nil
}

// openKernels opens the file in which what is learned is kept, nil where there is none.
// That it can't be read is no reason to serve nobody.
func openKernels(path string, log *slog.Logger) *cache.File {
	if path == "" {
		return nil
	}
	f, err := cache.Open(path, log)
	if err != nil {
		log.Error("what is learned of kernels is not kept", "err", err)
		return nil
	}
	return f
}

// newLog logs to standard error, one event a line. The journal stamps lines itself.
func newLog(verbose bool) *slog.Logger {
	o := &slog.HandlerOptions{}
	if verbose {
		o.Level = slog.LevelDebug
	}
	journal := os.Getenv("JOURNAL_STREAM") != ""
	o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && journal {
			return slog.Attr{}
		}
		if d, ok := a.Value.Any().(time.Duration); ok {
			a.Value = slog.StringValue(d.Round(100 * time.Nanosecond).String())
		}
		return a
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// groupID is the number of a group, -1 for none.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, cli.Usagef("group %q: %v", name, err)
	}
	n, err := strconv.Atoi(g.Gid)
	if err != nil {
		return 0, fmt.Errorf("group %q: %w", name, err)
	}
	return n, nil
}
