package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/daemon"
	"vgpud/mediator/executor"
	"vgpud/mediator/ipc"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vm"
)

// firstExtraFile is a child's first descriptor after the standard ones.
const firstExtraFile = 3

func newVM(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "vm",
		Short: "Serve one guest's virtual GPU",
		Long: `Serve one guest's virtual GPU. The daemon starts it, sends the description on standard
input, and waits for a report on file descriptor 3. Descriptors 4 and 5 are the guest's
sockets, and 6 is the file by which a daemon suspends the guest without a connection.`,
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			stderr, err := vm.NewStderr()
			if err != nil {
				return err
			}
			log, err := o.logTo(stderr)
			if err != nil {
				return err
			}
			if err := executor.ShortSlices(); err != nil {
				log.Debug("time slices not shortened, doorbells wait a little longer", "err", err)
			}
			if err := sandbox.Limit(); err != nil {
				log.Warn("guest's process is less confined", "err", err)
			}
			var b daemon.StartupConfig
			switch err := json.NewDecoder(os.Stdin).Decode(&b); {
			case errors.Is(err, io.EOF):
				return nil // the daemon ended without a guest for this process
			case err != nil:
				return fmt.Errorf("read the guest's description: %w", err)
			}
			if _, err := o.selfCommand("exec"); err != nil {
				return err
			}
			report := os.NewFile(firstExtraFile, "report")
			sockets, err := vm.Inherit(firstExtraFile + 1)
			if err != nil {
				return fmt.Errorf("this command is started by `vgpud serve`: %w", err)
			}
			owner := b.Owner()
			err = vm.Run(c.Context(), vm.Options{
				Spec: b.Spec, Sockets: sockets, Owner: &owner, Log: log, Stderr: stderr, Version: version.String(),
				Command:    func() *exec.Cmd { return mustSelfCommand(o, "exec") },
				PollWindow: executor.PollWindow, Features: featuresOf(&b.Spec),
				Ready: func() error { return reportLine(report, daemon.ReadyLine) },
			})
			if err != nil {
				return errors.Join(err, reportLine(report, err.Error()))
			}
			return nil
		},
	}
}

// featuresOf returns what executors implement on all of a guest's GPUs.
func featuresOf(s *ipc.Spec) abi.Features {
	f := executor.FeaturesOf(s.GPU.Kind)
	for _, g := range s.Floats {
		f &= executor.FeaturesOf(g.Kind)
	}
	return f
}

// reportLine writes the one line that the daemon waits for.
func reportLine(f *os.File, line string) error {
	_, err := fmt.Fprintln(f, line)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EPIPE) {
		return nil // already reported
	}
	return errors.Join(err, f.Close())
}

func newExec(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "exec",
		Short: "Carry out one guest context's commands",
		Long: `Carry out one guest context's commands. The guest's process starts it, with one end of
their connection as file descriptor 3.`,
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := o.log()
			if err != nil {
				return err
			}
			// `vgpud vm`, which reads this process's output, may end first. The connection ends
			// then too, and the work on the GPU is closed in order.
			signal.Ignore(unix.SIGPIPE)
			conn, err := ipc.FromFile(os.NewFile(firstExtraFile, "link"))
			if err != nil {
				return fmt.Errorf("this command is started by `vgpud vm`: %w", err)
			}
			log = slog.New(vm.LimitLog(log.Handler(), clock.Real{}))
			return executor.Serve(c.Context(), conn, openGPU(log), log)
		},
	}
}
