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

	"vgpud/gpu"
	"vgpud/gpu/nvidia"
	"vgpud/mediator/ipc"
)

// probeLimit is how long libcuda may take to list the GPUs. It takes a second or two
// where the driver has to wake a GPU.
const probeLimit = 30 * time.Second

// watchNVIDIA opens one of NVIDIA's GPUs to be watched. What it is it learns from a
// process of its own, so that this one never has libcuda in it.
func watchNVIDIA(ctx context.Context, o *options, log *slog.Logger, g ipc.GPU) (gpu.Monitor, error) {
	all, err := probeAgain(ctx, o)
	if err != nil {
		return nil, err
	}
	info, err := nvidia.Find(all, g.Device)
	if err != nil {
		return nil, err
	}
	m, err := nvidia.OpenMonitor(nvidia.MonitorOptions{Info: info, AllowUnknownDriver: g.AllowUnknownDriver, Log: log})
	if err != nil {
		return nil, err // without the type that is no nil any more
	}
	return m, nil
}

// probeAgain lists the GPUs by a process of this same program.
func probeAgain(ctx context.Context, o *options) ([]nvidia.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	again, err := o.again("probe")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, again.Path, again.Args[1:]...)
	cmd.Stderr = again.Stderr
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

// openNVIDIA opens one of NVIDIA's GPUs to be used by this process.
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
		return nil, err // without the type that is no nil any more
	}
	return d, nil
}
