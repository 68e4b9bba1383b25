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

	"vgpud/gpu/soft/machine"
	"vgpud/mediator/daemon"
)

// The kinds of GPU that the demo works on.
const (
	Soft   = "soft"   // a GPU in software, part of vgpud
	NVIDIA = "nvidia" // the machine's own
)

// gpuName is the GPU's name in the daemon's configuration: of the first, where there are several.
const gpuName = "gpu0"

// nameOf returns the name of one of several GPUs.
func nameOf(i int) string { return fmt.Sprintf("gpu%d", i) }

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
	if err := d.progress("starting a GPU in software"); err != nil {
		return c, err
	}
	args := []string{"--lead", gpuLead.String()}
	if d.o.VMs {
		args = append(args, "--warp-time", vmWarpTime.String())
	}
	return c, d.startSoft(ctx, &c, args...)
}

// startSeveral starts GPUs in software that run the kernels of different jobs side by side, and returns
// the daemon's configuration for them.
func (d *demo) startSeveral(ctx context.Context) (all []daemon.GPUConfig, err error) {
	if err := d.progress("starting %d GPUs in software", d.o.GPUs); err != nil {
		return nil, err
	}
	for i := range d.o.GPUs {
		c := daemon.GPUConfig{Name: nameOf(i), Kind: Soft, Policy: "none"}
		err := d.startSoft(ctx, &c, "--mode", machine.CoRun.String(), "--memory-bytes", fmt.Sprint(jobsGPUMemory), "--warp-time", jobsWarpTime.String())
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// startSoft starts a GPU in software, and completes its configuration.
func (d *demo) startSoft(ctx context.Context, c *daemon.GPUConfig, args ...string) error {
	c.Socket = filepath.Join(d.dir, c.Name+".sock")
	cmd, err := d.o.Program(append([]string{"softgpu", "--socket", c.Socket}, args...)...)
	if err != nil {
		return err
	}
	p, err := d.start("soft"+c.Name, cmd)
	if err != nil {
		return err
	}
	return waitUntil(ctx, p, func() error { _, err := os.Stat(c.Socket); return err })
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
