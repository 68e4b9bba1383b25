package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/service"
	"vgpud/cmd/internal/systemd"
	"vgpud/mediator/nova/agent"
)

func newServe(o *options) *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the agent",
		Long: `Run the agent: it asks vgpud every second, and has Placement follow within five. Placement,
Keystone, nova-compute and vgpud may come and go meanwhile. When it ends, what Placement has stays.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := o.connect()
			if err != nil {
				return err
			}
			defer n.close()
			if dry {
				return dryRun(c.Context(), c.OutOrStdout(), n)
			}
			service.LimitMemory()
			return serve(c.Context(), n, service.LogTo(os.Stderr))
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only print the requests that would be sent to Placement, and end")
	return c
}

// dryRun prints what the agent would do now.
func dryRun(ctx context.Context, w io.Writer, n *connection) error {
	v, err := agent.Look(ctx, n.config, n.placement, n.daemon)
	if err != nil {
		return err
	}
	for _, r := range v.Requests {
		if _, err := fmt.Fprintln(w, r); err != nil {
			return err
		}
	}
	if len(v.Requests) == 0 {
		_, err = fmt.Fprintln(w, "nothing to do: Placement has what this host offers")
	}
	return err
}

// serve runs the agent as a service.
func serve(ctx context.Context, n *connection, log *slog.Logger) (err error) {
	registry := service.NewRegistry()
	var rounds atomic.Uint64
	a := agent.New(agent.Options{
		Config: n.config, Placement: agent.Count(n.placement, registry), Daemon: n.daemon, Clock: clock.Real{}, Log: log, Machine: machine(log),
		Status: func(agent.Status) { rounds.Add(1) },
	})
	registry.MustRegister(agent.Collector(a.Status, clock.Real{}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	stopMetrics, err := service.ServeMetrics(n.config.Metrics, registry, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopMetrics()) }()
	if n.config.AgentSocket != "" {
		stop, err := serveAgent(n.config.AgentSocket, a, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	background.Go(func() { systemd.FeedWatchdog(ctx, systemd.Watchdog()/2, log, systemd.Advances(&rounds)) })
	systemd.TryNotify(log, "READY=1")
	log.Info("telling Placement of this host's GPUs", "host", n.config.Host, "daemon", n.config.Socket)
	a.Run(ctx)
	systemd.TryNotify(log, "STOPPING=1")
	cancel()
	return nil
}

// machine returns what tells this machine from others, as machine-id(5) wants it used: not the
// number itself.
func machine(log *slog.Logger) string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		log.Warn("this machine has no /etc/machine-id", "err", err)
		return ""
	}
	sum := sha256.Sum256(append([]byte("vgpu-placement\n"), b...))
	return hex.EncodeToString(sum[:16])
}

func newWithdraw(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw",
		Short: "Take this host's GPUs out of Placement",
		Long: `Take this host's GPUs out of Placement: their providers are deleted, or kept and closed where
instances have allocations. Stop the service before, or it makes them again. Instances go on.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := o.connect()
			if err != nil {
				return err
			}
			defer n.close()
			log := service.LogTo(os.Stderr)
			left, err := agent.New(agent.Options{
				Config: n.config, Placement: n.placement, Daemon: n.daemon, Clock: clock.Real{}, Log: log, Machine: machine(log),
			}).Withdraw(c.Context())
			if err != nil {
				return err
			}
			for _, p := range left {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "provider %s (%s) stays, closed: instances have allocations there; delete or move them, and try again\n", p.Name, p.UUID); err != nil {
					return err
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("%d providers are in use", len(left))
			}
			return nil
		},
	}
}
