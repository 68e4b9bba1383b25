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

// probeLimit bounds the time in which libcuda lists the GPUs. It takes a second or two if the
// driver has to wake a GPU.
const probeLimit = 30 * time.Second

// watchNVIDIA opens one of NVIDIA's GPUs for monitoring. A child process lists the GPUs, so that
// this process never loads libcuda.
func watchNVIDIA(ctx context.Context, o *options, log *slog.Logger, g ipc.GPU) (gpu.Monitor, error) {
	all, err := probeInChild(ctx, o)
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

// probeInChild lists the GPUs in a child process.
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
