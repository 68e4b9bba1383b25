package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/cmd/vgpud/child"
	"vgpud/mediator/api"
)

const (
	gpuName     = "gpu0"
	gpuMemory   = 8 << 30
	warpTime    = 10 * time.Nanosecond // less than interpretation takes: no test waits for modelled time
	sharedBytes = 256 << 20
	startLimit  = 10 * time.Minute
)

// host is a software GPU and the daemon, for guests without a VM.
type host struct {
	vgpud     string
	dir       string
	client    *api.Client
	processes []*child.Process // in the order of their start
}

// newHost starts a software GPU and the daemon with the programs in bin. The caller closes it, also
// after an error.
func newHost(ctx context.Context, bin string) (*host, error) {
	dir, err := os.MkdirTemp("", "vgpud-") // sockets' paths are short
	if err != nil {
		return nil, err
	}
	h := &host{vgpud: filepath.Join(bin, "vgpud"), dir: dir}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	// Guests' processes have users of their own.
	if err := os.Chmod(dir, 0o755); err != nil {
		return h, err
	}
	socket := filepath.Join(dir, "gpu.sock")
	gpu, err := h.start("softgpu", "--socket", socket, "--memory-bytes", fmt.Sprint(gpuMemory), "--warp-time", warpTime.String())
	if err != nil {
		return h, err
	}
	if err := child.WaitUntil(ctx, gpu, func() error { _, err := os.Stat(socket); return err }); err != nil {
		return h, err
	}
	config, err := yaml.Marshal(map[string]any{
		"run_dir": dir, "libvirt": "off", "confinement": map[string]any{"mode": "off"},
		"gpus": []any{map[string]any{"name": gpuName, "kind": "soft", "socket": socket, "policy": "none"}},
	})
	if err != nil {
		return h, err
	}
	path := filepath.Join(dir, "vgpud.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return h, err
	}
	daemon, err := h.start("serve", "--config", path)
	if err != nil {
		return h, err
	}
	h.client = api.NewClient(filepath.Join(dir, "vgpud.sock"))
	return h, child.WaitUntil(ctx, daemon, func() error { _, err := h.client.Health(ctx); return err })
}

func (h *host) start(command string, args ...string) (*child.Process, error) {
	p, err := child.Start(h.dir, command, exec.Command(h.vgpud, append([]string{command}, args...)...))
	if err == nil {
		h.processes = append(h.processes, p)
	}
	return p, err
}

// Close ends everything.
func (h *host) Close() error {
	var errs []error
	if h.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		vms, err := h.client.VMs(ctx)
		errs = append(errs, err)
		for _, v := range vms {
			errs = append(errs, h.client.ForceDeleteVM(ctx, v.Name))
		}
		h.client.Close()
	}
	for i := len(h.processes) - 1; i >= 0; i-- {
		errs = append(errs, h.processes[i].End())
	}
	return errors.Join(append(errs, os.RemoveAll(h.dir))...)
}

// newGuest creates a guest.
func (h *host) newGuest(ctx context.Context, name string) (api.VM, error) {
	return h.client.CreateVM(ctx, api.VMSpec{Name: name, GPU: gpuName, BAR2Bytes: sharedBytes, KernelTimeLimit: api.NoTimeLimit})
}
