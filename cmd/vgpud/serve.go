package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator"
	"vgpud/mediator/domain/libvirt"
)

const defaultConfig = "/etc/vgpud/vgpud.yaml"

func newServe(o *options) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon: it makes guests' virtual GPUs, accounts who uses the physical
ones, and shares them by weight. Guests that an earlier daemon made are found
again; those that are there when it ends go on.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := o.log()
			if err != nil {
				return err
			}
			config, err := mediator.ReadConfig(path)
			if err != nil {
				return err
			}
			// Commands are made later; that they can be is found out now.
			if _, err := o.again("vm"); err != nil {
				return err
			}
			s, err := mediator.New(c.Context(), mediator.Options{
				Config: config, Open: openGPU, Log: log, Version: version(),
				Command: func() *exec.Cmd { return mustAgain(o, "vm") },
				Libvirt: connectLibvirt,
			})
			if err != nil {
				return err
			}
			return s.Run(c.Context(), func() {
				if err := notifyReady(); err != nil {
					log.Warn("tell the service manager", "err", err)
				}
			})
		},
	}
	c.Flags().StringVarP(&path, "config", "c", defaultConfig, "the configuration file")
	return c
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

// notifyReady tells the service manager, if there is one, that the daemon
// answers (sd_notify).
func notifyReady() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // an abstract socket
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return err
	}
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("%w (and close: %v)", err, conn.Close())
	}
	return conn.Close()
}
