package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vgpud/mediator/daemon"
)

// The kinds of GPU that the demo works on.
const (
	Soft   = "soft"   // a GPU in software, which it brings
	NVIDIA = "nvidia" // the machine's own
)

// gpuName is what the daemon calls the GPU.
const gpuName = "gpu0"

// gpuLead is how far the GPU in software computes ahead of its time, a quarter of the
// usual. A block looks whether to leave when it is computed, so that kernels take up
// to this longer to leave than they would on hardware.
const gpuLead = 500 * time.Microsecond

// startGPU sees to it that there is a GPU, and returns the daemon's configuration for
// it.
func (d *demo) startGPU(ctx context.Context) (daemon.GPUConfig, error) {
	c := daemon.GPUConfig{Name: gpuName, Kind: d.o.GPU, Policy: "none"}
	if d.o.GPU == NVIDIA {
		name, err := probe(d.o.Program)
		if err != nil {
			return c, err
		}
		return c, d.say("the GPU is %s", name)
	}
	c.Socket = filepath.Join(d.dir, gpuName+".sock")
	if err := d.say("starting a GPU in software"); err != nil {
		return c, err
	}
	args := []string{"softgpu", "--socket", c.Socket, "--lead", gpuLead.String()}
	if d.o.VMs {
		args = append(args, "--warp-time", vmWarpTime.String())
	}
	cmd, err := d.o.Program(args...)
	if err != nil {
		return c, err
	}
	p, err := d.start("softgpu", cmd)
	if err != nil {
		return c, err
	}
	return c, until(ctx, p, func() error { _, err := os.Stat(c.Socket); return err })
}

// probe asks a process of its own which NVIDIA GPU there is, before anything is
// started on it. Of several the daemon's configuration would have to name one.
func probe(program func(args ...string) (*exec.Cmd, error)) (string, error) {
	cmd, err := program("probe")
	if err != nil {
		return "", err
	}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("no NVIDIA GPU to work on: %w\n%s%s", err, bytes.TrimSpace(log.Bytes()), askDoctor)
	}
	return readProbe(out.Bytes())
}

// askDoctor is what to do where there is no GPU.
const askDoctor = "\n`vgpuctl doctor` tells what this machine lacks; without --gpu the demo brings a GPU in software"

// readProbe reads what `vgpud probe` says.
func readProbe(out []byte) (string, error) {
	var found struct {
		GPUs []struct {
			UUID       string `json:"uuid"`
			Properties struct{ Name string }
		} `json:"gpus"`
		Error string `json:"error"`
	}
	err := json.Unmarshal(out, &found)
	if err == nil && found.Error != "" {
		err = errors.New(found.Error)
	}
	switch n := len(found.GPUs); {
	case err != nil:
	case n == 0:
		err = errors.New("the driver has none")
	case n > 1:
		err = fmt.Errorf("there are %d: have the demo see one, by CUDA_VISIBLE_DEVICES=%s", n, found.GPUs[0].UUID)
	default:
		return fmt.Sprintf("%s, %s", found.GPUs[0].Properties.Name, found.GPUs[0].UUID), nil
	}
	return "", fmt.Errorf("no NVIDIA GPU to work on: %w%s", err, askDoctor)
}
