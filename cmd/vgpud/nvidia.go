package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/singleflight"

	"vgpud/gpu"
	"vgpud/gpu/nvidia"
	"vgpud/mediator/ipc"
)

// probeLimit bounds the time in which libcuda lists the GPUs. It takes a second or two if the
// driver has to wake a GPU.
const probeLimit = 30 * time.Second

// lister lists NVIDIA's GPUs. Callers that come while a list is made wait for that one: the daemon
// opens its GPUs all at once.
type lister struct {
	list   func(context.Context) ([]nvidia.Info, error)
	shared singleflight.Group
}

// gpus returns the GPUs. The context of the caller that was first bounds the wait of all.
func (l *lister) gpus(ctx context.Context) ([]nvidia.Info, error) {
	all, err, _ := l.shared.Do("", func() (any, error) { return l.list(ctx) })
	if err != nil {
		return nil, err
	}
	return all.([]nvidia.Info), nil
}

// watchNVIDIA opens one of NVIDIA's GPUs for monitoring.
func watchNVIDIA(ctx context.Context, l *lister, log *slog.Logger, g ipc.GPU) (gpu.Monitor, error) {
	all, err := l.gpus(ctx)
	if err != nil {
		return nil, err
	}
	info, err := nvidia.Find(all, g.Device)
	if err != nil {
		return nil, err
	}
	m, err := nvidia.OpenMonitor(nvidia.MonitorOptions{Info: info, AllowUnknownDriver: g.AllowUnknownDriver, Log: log})
	if err != nil {
		return nil, err // not a nil pointer in a non-nil interface
	}
	return m, nil
}

// probeInChild lists the GPUs in a child process, so that this one never loads libcuda.
func probeInChild(ctx context.Context, o *options) ([]nvidia.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	self, err := o.selfCommand("probe")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self.Path, self.Args[1:]...)
	cmd.Stderr = self.Stderr
	out, err := cmd.Output()
	var r probeResult
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("list NVIDIA GPUs by `vgpud probe`: %w", errors.Join(err, ctx.Err()))
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.GPUs, nil
}

// openNVIDIA opens one of NVIDIA's GPUs for use by this process.
func openNVIDIA(log *slog.Logger, g ipc.GPU) (gpu.Device, error) {
	o := nvidia.Options{Device: g.Device, Connections: g.Connections, CaptureOutput: true, Log: log}
	var err error
	if o.Kernel, err = nvidia.Beneath(os.DirFS("/")); err != nil {
		if !g.AllowUnknownDriver {
			return nil, err
		}
		log.Warn("this process's contexts can't be taken off the GPU", "err", err)
	}
	d, err := nvidia.Open(o)
	if err != nil {
		return nil, err // not a nil pointer in a non-nil interface
	}
	return d, nil
}
