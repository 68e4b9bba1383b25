package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/journal"
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
	perUser allot.Limits
	windows uint64 // of one user's programs, MiB
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
		Short: "Prepare virtual GPUs, present and plugged later, and share them",
		Long: `serve prepares the virtual GPUs of this VM, including those plugged later, and shares
them with the programs that connect to its socket. It logs one event a line on standard
error. Under systemd it reports when it is ready and feeds the watchdog.

The kernels of programs that share a device are made preemptible, if the host supports
it. Each uses the form that leaves soonest among those of negligible cost, or else the
cheapest that leaves within --preempt-latency. Measurements of kernels are stored in the
file --kernels.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c.Context(), o, &s) },
	}
	f := c.Flags()
	f.StringVar(&s.group, "group", "", "group, by name or number, that may use the devices and the socket (default: only root)")
	f.BoolVar(&s.noCheck, "no-check", false, "don't run a kernel on new devices")
	f.StringVar(&s.kernels, "kernels", cache.DefaultPath, "the file for measurements of kernels; empty: none")
	f.StringVar(&s.preempt, "preempt", preemptOn, "make the kernels of programs that share a device preemptible: on, off")
	f.DurationVar(&s.wanted.Latency, "preempt-latency", tune.DefaultLatency, "the time within which an evicted kernel should leave the GPU")
	f.Float64Var(&s.wanted.Overhead, "preempt-overhead", tune.DefaultOverhead, "the highest acceptable cost of that, as a part of the kernel's time")
	f.IntVar(&s.perUser.Programs, "user-programs", 0, "how many programs of one user may share a device; 0: no limit; root has none")
	f.IntVar(&s.perUser.Contexts, "user-contexts", 0, "how many contexts the programs of one user may have together")
	f.IntVar(&s.perUser.Channels, "user-channels", 0, "how many channels the programs of one user may have together")
	f.Uint64Var(&s.windows, "user-windows", 0, "how much shared memory, in MiB, the programs of one user may have together")
	cli.CompleteFlag(c, "preempt", preemptOn, preemptOff)
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
		Alive:     func() { systemd.TryNotify(log, "WATCHDOG=1") },
		Heartbeat: watchdog / 3,
		Kernels:   kernels, Preempt: s.wanted, PerUser: s.perUser,
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
	if kernels != nil { // programs may have sent measurements while they were disconnected
		if err := kernels.Save(); err != nil {
			log.Error("measurements of kernels not saved", "err", err)
		}
	}
	return err
}

// check checks the options on preemptible kernels.
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
	const mostWindows = 1 << 20 // MiB
	if s.perUser.Programs < 0 || s.perUser.Contexts < 0 || s.perUser.Channels < 0 || s.windows > mostWindows {
		return cli.Usagef("limits of a user: want 0 or more, and at most %d MiB", mostWindows)
	}
	s.perUser.SharedBytes = s.windows << 20
	return nil
}

// openKernels opens the file of measurements, or returns nil if there is none. The agent serves
// even if the file can't be read.
func openKernels(path string, log *slog.Logger) *cache.File {
	if path == "" {
		return nil
	}
	f, err := cache.Open(path, log)
	if err != nil {
		log.Error("measurements of kernels will not be saved", "err", err)
		return nil
	}
	return f
}

// newLog returns a logger to standard error, one event a line, in the journal's form if that is the
// destination.
func newLog(verbose bool) *slog.Logger {
	o := slog.HandlerOptions{}
	if verbose {
		o.Level = slog.LevelDebug
	}
	o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if d, ok := a.Value.Any().(time.Duration); ok {
			a.Value = slog.StringValue(d.Round(100 * time.Nanosecond).String())
		}
		return a
	}
	text := func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }
	if journal.Connected(os.Stderr) {
		return slog.New(journal.New(os.Stderr, o, text))
	}
	return slog.New(text(os.Stderr, &o))
}

// groupID returns the number of a group, or -1 for none.
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
