package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/systemd"
	"vgpud/gpu"
	"vgpud/gpu/nvidia"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/remote"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vm"
)

// openGPU returns a function that opens physical GPUs by their kind, for use by this process.
func openGPU(log *slog.Logger) func(context.Context, ipc.GPU) (gpu.Device, error) {
	return func(ctx context.Context, g ipc.GPU) (gpu.Device, error) {
		switch g.Kind {
		case "soft":
			return remote.Dial(ctx, g.Socket)
		case "nvidia":
			return openNVIDIA(log, g)
		default:
			return nil, fmt.Errorf("kind %q: this build has \"soft\" and \"nvidia\"", g.Kind)
		}
	}
}

// watchGPU returns a function that opens physical GPUs by their kind, for monitoring.
func watchGPU(o *options, log *slog.Logger) func(context.Context, ipc.GPU) (gpu.Monitor, error) {
	use := openGPU(log)
	l := &lister{list: func(ctx context.Context) ([]nvidia.Info, error) { return probeInChild(ctx, o) }}
	return func(ctx context.Context, g ipc.GPU) (gpu.Monitor, error) {
		if g.Kind == "nvidia" {
			return watchNVIDIA(ctx, l, log, g)
		}
		return use(ctx, g)
	}
}

func newSoftGPU(o *options) *cobra.Command {
	var s remote.ServerOptions
	var mode string
	c := &cobra.Command{
		Use:   "softgpu",
		Short: "Run a GPU in software",
		Long: `Run a GPU in software: it executes PTX, has the registers of an Ampere GPU, and takes the
time that its cost model gives.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, end, err := o.serviceLog()
			if err != nil {
				return err
			}
			defer end()
			if s.GPU.Machine.Mode, err = machine.ParseMode(mode); err != nil {
				return cli.UsageError{Err: err}
			}
			// Faults of guests' kernels are logged here too.
			s.Log = slog.New(vm.LimitLog(log.Handler(), clock.Real{}))
			s.Ready = func() { systemd.TryNotify(log, "READY=1") }
			return remote.Run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.StringVar(&s.Socket, "socket", "/run/vgpud/gpu0.sock", "the socket that programs connect to")
	f.IntVar(&s.Group, "group", 0, "id of a group that may also connect: the first of the daemon's confinement.uids")
	f.StringVar(&s.GPU.Name, "name", "", "the GPU's name (default \"vgpud soft GPU\")")
	f.StringVar(&mode, "mode", machine.Exclusive.String(), fmt.Sprintf("how it takes turns: %v, %v, %v", machine.Exclusive, machine.Slices, machine.CoRun))
	f.IntVar(&s.GPU.Machine.SMs, "sms", 0, "streaming multiprocessors (default: the model's)")
	f.Uint64Var(&s.GPU.MemoryBytes, "memory-bytes", 0, "memory (default 1 GiB)")
	f.DurationVar(&s.GPU.WarpTime, "warp-time", 0, "the GPU's speed: time of one simple instruction of a warp (default 200ns)")
	f.IntVar(&s.GPU.Priority, "priority", 0, "SCHED_FIFO priority of the pacing thread (default 20; negative: none)")
	f.DurationVar(&s.GPU.Lead, "lead", 2*time.Millisecond, "how far interpretation may run ahead of the modelled time")
	return c
}
