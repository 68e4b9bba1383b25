package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"vgpud/gpu"
	"vgpud/gpu/nvidia"
	"vgpud/gpu/soft/remote"
	"vgpud/mediator/ipc"
)

// openGPU opens the GPU for a program of the host.
func openGPU(ctx context.Context, g ipc.GPU) (gpu.Device, error) {
	switch g.Kind {
	case "soft":
		return remote.Dial(ctx, g.Socket)
	case "nvidia":
		// With the kernel's driver, that contexts can be taken off the GPU.
		o := nvidia.Options{Device: g.Device, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		var err error
		if o.Kernel, err = nvidia.Beneath(os.DirFS("/")); err != nil {
			return nil, err
		}
		d, err := nvidia.Open(o)
		if err != nil {
			return nil, err // without the type that is no nil any more
		}
		return d, nil
	default:
		return nil, fmt.Errorf("kind %q: want nvidia or soft", g.Kind)
	}
}

// device is a GPU as the daemon's program finds it.
type device struct {
	name, driver string
	sms          int
}

// probe asks the daemon's program about the GPU.
func probe(ctx context.Context, o *options) (d device, err error) {
	info, driver, err := found(ctx, o)
	return device{info.Properties.Name, driver, info.Properties.SMs}, err
}

// found is the GPU that is meant, as the daemon's program finds it, and the driver's version. Where all
// GPUs are meant, it is the first by the name of all, and they are in o.devices.
func found(ctx context.Context, o *options) (info nvidia.Info, driver string, err error) {
	out, err := exec.CommandContext(ctx, filepath.Join(o.programs, "vgpud"), "probe").Output()
	if err != nil {
		return info, "", fmt.Errorf("vgpud probe: %w", err)
	}
	var p struct {
		GPUs   []nvidia.Info `json:"gpus"`
		Driver string        `json:"driver"`
		Error  string        `json:"error"`
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return info, "", fmt.Errorf("vgpud probe: %w", err)
	}
	if len(p.GPUs) == 0 {
		return info, "", fmt.Errorf("vgpud probe finds no GPU: %s", p.Error)
	}
	if o.several() && o.device == "" {
		if len(p.GPUs) < 2 {
			return info, "", fmt.Errorf("part %s takes two GPUs or more, and there is one", o.part)
		}
		info = p.GPUs[0]
		var names []string
		o.devices = nil
		for _, g := range p.GPUs {
			names = append(names, g.Properties.Name)
			o.devices = append(o.devices, g.UUID)
		}
		info.Properties.Name = describeSeveral(names)
		return info, p.Driver, nil
	}
	info, err = nvidia.Find(p.GPUs, o.device)
	return info, p.Driver, err
}
