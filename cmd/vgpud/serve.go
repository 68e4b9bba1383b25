package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/systemd"
	"vgpud/cmd/internal/version"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/daemon"
	"vgpud/mediator/executor"
	"vgpud/mediator/libvirt"
)

const defaultConfig = "/etc/vgpud/vgpud.yaml"

func newServe(o *options) *cobra.Command {
	var path string
	var check bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon: it creates guests' virtual GPUs, accounts the use of the physical
GPUs, and shares them by weight. It adopts the guests of an earlier daemon; guests
go on when it ends.

On SIGHUP it reads its configuration again. Policies, accounting, the suspension of
channels and the eviction deadline change at once, the kernels' time limit for new
guests. Other changed settings are named in the log and need a restart.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, end, err := o.serviceLog()
			if err != nil {
				return err
			}
			defer end()
			config, err := daemon.ReadConfig(path)
			if err != nil {
				return err
			}
			if check {
				return nil
			}
			limitProcessors()
			limitMemory()
			// Later calls can't fail once this one has succeeded.
			if _, err := o.selfCommand("vm"); err != nil {
				return err
			}
			s, err := daemon.New(c.Context(), daemon.Options{
				Config: config, Open: watchGPU(o, log), Log: log, Version: version.String(),
				Command:  func() *exec.Cmd { return mustSelfCommand(o, "vm") },
				Features: executor.FeaturesOf, Libvirt: connectLibvirt,
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
	c.Flags().BoolVar(&check, "check", false, "only check the configuration file")
	c.Flags().StringVarP(&path, "config", "c", defaultConfig, "the configuration file")
	return c
}

// limitProcessors limits Go's scheduler to four processors, unless the environment sets the number.
// The daemon sleeps nearly all the time, and at every wake-up the scheduler looks for work on all
// its processors, which takes twice as long on 16. With fewer than four, decisions would wait for
// calls into GPU drivers, of a millisecond each.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(4, runtime.NumCPU()))
	}
}

// limitMemory has Go collect garbage when the heap has grown by a quarter, unless the environment
// says when. With 1,000 guests that saves 25 MB of 87.
func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// serve runs the daemon as a service: it reloads the configuration on SIGHUP and reports the state
// to the service manager.
func serve(ctx context.Context, s *daemon.Service, config string, log *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	ending := context.AfterFunc(ctx, func() { systemd.TryNotify(log, "STOPPING=1") })
	defer ending()
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.Run(ctx, func() {
		systemd.TryNotify(log, "READY=1")
		background.Go(func() { systemd.FeedWatchdog(ctx, systemd.Watchdog()/2, log, s.Alive) })
		background.Go(func() {
			for {
				select {
				case <-hangups:
					systemd.TryNotify(log, systemd.Reloading()...)
					status := "the configuration was read again"
					if err := reload(s, config, log); err != nil {
						log.Error("configuration not reloaded", "err", err)
						status = "the configuration was not reloaded: " + strings.ReplaceAll(err.Error(), "\n", "; ")
					}
					systemd.TryNotify(log, "READY=1", "STATUS="+status)
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// reload reads the configuration again. If it is invalid, nothing changes.
func reload(s *daemon.Service, path string, log *slog.Logger) error {
	config, err := daemon.ReadConfig(path)
	if err != nil {
		return err
	}
	fixed, err := s.Reload(config)
	if len(fixed) > 0 {
		log.Warn("these settings need a restart, during which guests go on", "settings", fixed)
	}
	return err
}

// connectLibvirt connects to libvirt through the program that loads its library.
func connectLibvirt(ctx context.Context, uri string) (libvirt.Source, error) {
	c, err := libvirt.Open(ctx, libvirt.Options{URI: uri})
	if err != nil {
		return nil, err // not c, a nil pointer in a non-nil interface
	}
	return c, nil
}

// mustSelfCommand is selfCommand after it has succeeded once.
func mustSelfCommand(o *options, args ...string) *exec.Cmd {
	cmd, err := o.selfCommand(args...)
	if err != nil {
		panic(err)
	}
	return cmd
}
