package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/cmd/vgpud/batch"
	"vgpud/cmd/vgpud/child"
	"vgpud/gpu/soft/machine"
	"vgpud/mediator/api"
	"vgpud/mediator/daemon"
	"vgpud/mediator/sandbox"
)

// Host is a daemon with several GPUs in software.
type Host struct {
	batch.Options
	program   string
	runDir    string // the daemon's
	processes []*child.Process
}

// startLimit bounds the start of everything, on a busy machine.
const startLimit = 5 * time.Minute

// Start starts the GPUs, whose contexts run side by side, with memory bytes each and of a speed (see
// softgpu's --warp-time), and the daemon. program is vgpud. The caller closes the host, also after an
// error.
func Start(ctx context.Context, program string, gpus int, memory uint64, warpTime time.Duration) (*Host, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "vgpud-") // paths of sockets are short
	if err != nil {
		return nil, err
	}
	h := &Host{program: program}
	h.Dir, h.Program = dir, func(args ...string) (*exec.Cmd, error) { return exec.Command(program, args...), nil }
	// Executors have users of their own, and sockets in it.
	if err := os.Chmod(dir, 0o711); err != nil {
		return h, err
	}
	if h.runDir, err = makeRunDir(); err != nil {
		return h, err
	}
	c := daemon.Config{RunDir: h.runDir, Socket: filepath.Join(dir, "vgpud.sock")}
	for i := range gpus {
		g := daemon.GPUConfig{Name: fmt.Sprintf("gpu%d", i), Kind: "soft", Policy: "none", WarmExecutors: "true"}
		g.Socket = filepath.Join(dir, g.Name+".sock")
		args := []string{
			"softgpu", "--socket", g.Socket, "--mode", machine.CoRun.String(), "--memory-bytes", strconv.FormatUint(memory, 10),
			"--warp-time", warpTime.String(),
		}
		if os.Geteuid() == 0 {
			args = append(args, "--group", strconv.Itoa(sandbox.DefaultUIDs.Group()))
		}
		err := h.start(ctx, g.Name, func() error { _, err := os.Stat(g.Socket); return err }, args...)
		if err != nil {
			return h, err
		}
		h.GPUs = append(h.GPUs, g.Name)
		c.GPUs = append(c.GPUs, g)
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return h, err
	}
	config := filepath.Join(dir, "vgpud.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return h, err
	}
	h.Client = api.NewClient(c.Socket)
	return h, h.start(ctx, "serve", func() error { _, err := h.Client.Health(ctx); return err }, "serve", "--config", config)
}

// makeRunDir makes the daemon's directory. It is in memory where that can be, as /run/vgpud is: the daemon
// writes there what it grants before it tells. Sockets of GPUs can't be there, since executors have a
// /dev of their own.
func makeRunDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "vgpud-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "vgpud-")
}

// start starts a process and waits until it answers.
func (h *Host) start(ctx context.Context, name string, answers func() error, args ...string) error {
	p, err := child.Start(h.Dir, name, exec.Command(h.program, args...))
	if err != nil {
		return err
	}
	h.processes = append(h.processes, p)
	return child.WaitUntil(ctx, p, answers)
}

// Close ends everything, and removes the logs.
func (h *Host) Close() error {
	var errs []error
	for _, p := range slices.Backward(h.processes) {
		errs = append(errs, p.End())
	}
	if h.Client != nil {
		h.Client.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(h.Dir), os.RemoveAll(h.runDir))...)
}
