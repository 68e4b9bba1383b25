package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/systemd"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/daemon"
	"vgpud/mediator/libvirt"
)

const defaultConfig = "/etc/vgpud/vgpud.yaml"

func newServe(o *options) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon: it makes guests' virtual GPUs, accounts who uses the physical
ones, and shares them by weight. Guests that an earlier daemon made are found
again; those that are there when it ends go on.

On SIGHUP it reads its configuration again: policies, accounting, how channels are
suspended and evictions wait change at once, the kernels' time limit for guests
that are made from then on. What else is different is named in the log and takes a
restart.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := o.log()
			if err != nil {
				return err
			}
			config, err := daemon.ReadConfig(path)
			if err != nil {
				return err
			}
			fewProcessors()
			// Commands are made later; that they can be is found out now.
			if _, err := o.again("vm"); err != nil {
				return err
			}
			s, err := daemon.New(c.Context(), daemon.Options{
				Config: config, Open: watchGPU(o, log), Log: log, Version: cli.Version(),
				Command: func() *exec.Cmd { return mustAgain(o, "vm") },
				Libvirt: connectLibvirt,
				Inventory: func(ctx context.Context, f func(inventory.Message)) error {
					return inventory.Watch(ctx, inventory.Options{Clock: clock.Real{}, Log: log}, f)
				},
			})
			if err != nil {
				return err
			}
			return serve(c.Context(), s, path, log)
		},
	}
	c.Flags().StringVarP(&path, "config", "c", defaultConfig, "the configuration file")
	return c
}

// fewProcessors keeps Go's scheduler to four processors, unless the environment says
// how many. The daemon sleeps nearly all the time, and at every wake the scheduler looks
// for work on as many processors as it has, which takes twice as long on 16. Fewer than
// four would have decisions wait for calls of GPUs' drivers, of a millisecond each.
func fewProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(4, runtime.NumCPU()))
	}
}

// serve runs the daemon as a service: it reads its configuration again on SIGHUP,
// and tells the service manager how it is.
func serve(ctx context.Context, s *daemon.Service, config string, log *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	ending := context.AfterFunc(ctx, func() { systemd.Tell(log, "STOPPING=1") })
	defer ending()
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.Run(ctx, func() {
		systemd.Tell(log, "READY=1")
		beside.Go(func() { systemd.Feed(ctx, systemd.Watchdog()/2, log, s.Alive) })
		beside.Go(func() {
			for {
				select {
				case <-hangups:
					systemd.Tell(log, systemd.Reloading()...)
					reload(s, config, log)
					systemd.Tell(log, "READY=1")
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// reload reads the configuration again. Where it is wrong, everything stays as it
// was.
func reload(s *daemon.Service, path string, log *slog.Logger) {
	config, err := daemon.ReadConfig(path)
	if err != nil {
		log.Error("configuration not taken over", "err", err)
		return
	}
	fixed, err := s.Reload(config)
	if err != nil {
		log.Error("configuration not taken over", "err", err)
	}
	if len(fixed) > 0 {
		log.Warn("these settings take a restart; guests go on meanwhile", "settings", fixed)
	}
}

// connectLibvirt connects to libvirt by the program that has its library.
func connectLibvirt(ctx context.Context, uri string) (libvirt.Source, error) {
	c, err := libvirt.Open(ctx, libvirt.Options{URI: uri})
	if err != nil {
		return nil, err // without the type that is no nil any more
	}
	return c, nil
}

// mustAgain is again where it is known to succeed: this program was found once.
func mustAgain(o *options, args ...string) *exec.Cmd {
	cmd, err := o.again(args...)
	if err != nil {
		panic(err)
	}
	return cmd
}
