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
)

type serveOptions struct {
	group   string
	noCheck bool
	verbose bool
}

func newServe(o *options) *cobra.Command {
	var s serveOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "Prepare virtual GPUs as they come, and share them, until told to end",
		Long: `serve prepares the virtual GPUs there are and those that are plugged later,
and shares them with the programs that connect to its socket. It logs one event a
line on standard error. Under systemd it says when it is ready and feeds the
watchdog.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c.Context(), o, &s) },
	}
	f := c.Flags()
	f.StringVar(&s.group, "group", "", "group, by name or number, that may use the devices and the socket (default: root alone)")
	f.BoolVar(&s.noCheck, "no-check", false, "don't run a kernel on devices that come")
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
	watchdog := systemd.Watchdog()
	a := agent.New(agent.Options{
		PCI: p, GID: gid, NoCheck: s.noCheck, Log: log,
		Alive: func() { systemd.Tell(log, "WATCHDOG=1") },
		Beat:  watchdog / 3,
	})
	l, err := a.Listen(o.socket)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Serve(ctx, l) })
	g.Go(func() error { return a.Run(ctx, func() { systemd.Tell(log, "READY=1") }) })
	g.Go(func() error {
		<-ctx.Done()
		log.Info("ending")
		systemd.Tell(log, "STOPPING=1")
		return nil
	})
	return g.Wait()
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
