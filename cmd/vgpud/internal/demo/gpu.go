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
	Soft   = "soft"   // a GPU in software, part of vgpud
	NVIDIA = "nvidia" // the machine's own
)

// gpuName is the GPU's name in the daemon's configuration.
const gpuName = "gpu0"

// gpuLead is how far the GPU in software computes ahead of its time, a quarter of the default. A
// block checks whether to leave when it is computed, so kernels take up to this longer to leave
// than on hardware.
const gpuLead = 500 * time.Microsecond

// startGPU starts or finds the GPU, and returns the daemon's configuration for it.
func (d *demo) startGPU(ctx context.Context) (daemon.GPUConfig, error) {
	c := daemon.GPUConfig{Name: gpuName, Kind: d.o.GPU, Policy: "none"}
	if d.o.GPU == NVIDIA {
		name, err := probe(d.o.Program)
		if err != nil {
			return c, err
		}
		return c, d.progress("the GPU is %s", name)
	}
	c.Socket = filepath.Join(d.dir, gpuName+".sock")
	if err := d.progress("starting a GPU in software"); err != nil {
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
	return c, waitUntil(ctx, p, func() error { _, err := os.Stat(c.Socket); return err })
}

// probe asks a child process which NVIDIA GPU there is, before anything is started on it. The demo
// uses no configuration that chooses among several.
func probe(program func(args ...string) (*exec.Cmd, error)) (string, error) {
	cmd, err := program("probe")
	if err != nil {
		return "", err
	}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("no NVIDIA GPU to work on: %w\n%s%s", err, bytes.TrimSpace(log.Bytes()), doctorAdvice)
	}
	return readProbe(out.Bytes())
}

// doctorAdvice says what to do without a GPU.
const doctorAdvice = "\n`vgpuctl doctor` shows what this machine lacks; without --gpu the demo uses a GPU in software"

// readProbe parses the output of `vgpud probe`.
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
		err = errors.New("the driver lists none")
	case n > 1:
		err = fmt.Errorf("there are %d: choose one by CUDA_VISIBLE_DEVICES=%s", n, found.GPUs[0].UUID)
	default:
		return fmt.Sprintf("%s, %s", found.GPUs[0].Properties.Name, found.GPUs[0].UUID), nil
	}
	return "", fmt.Errorf("no NVIDIA GPU to work on: %w%s", err, doctorAdvice)
}
