package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"vgpud/guestagent/driver"
	"vgpud/mediator"
	"vgpud/mediator/api"
)

// GPUName is the name of a host's GPU.
const GPUName = "gpu0"

// startLimit is how long a process may take to answer.
const startLimit = 30 * time.Second

var build struct {
	sync.Once
	dir string
	err error
}

// program builds vgpud, once a test binary.
func program() (string, error) {
	build.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "vgpud-e2e-"); build.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", build.dir, "vgpud/cmd/vgpud")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("build vgpud: %w\n%s", err, out)
		}
	})
	return filepath.Join(build.dir, "vgpud"), build.err
}

// Cleanup removes what was built. A package's TestMain calls it last.
func Cleanup() error {
	if build.dir == "" {
		return nil
	}
	return os.RemoveAll(build.dir)
}

// Process is one of the host's.
type Process struct {
	Cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
	err   error
}

// Kill ends a process without warning, and waits for that.
func (p *Process) Kill() error {
	if err := p.Cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// End asks a process to end, and waits for that.
func (p *Process) End() error {
	if err := p.Cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%v: %w", p.Cmd.Args, p.err)
	}
	return nil
}

// Host is a running vgpud.
type Host struct {
	tb      testing.TB
	program string
	Dir     string
	GPU     *Process
	Daemon  *Process
	Client  *api.Client
	Config  mediator.Config
}

// Start starts a soft GPU and the daemon, which share by policy. They end with
// the test; where it fails, their logs are shown.
func Start(tb testing.TB, policy string, gpuFlags ...string) *Host {
	tb.Helper()
	bin, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		tb.Fatal(err)
	}
	h := &Host{tb: tb, program: bin, Dir: dir}
	h.Config = mediator.Config{RunDir: dir, Socket: filepath.Join(dir, "vgpud.sock"), GPUs: []mediator.GPUConfig{
		{Name: GPUName, Kind: "soft", Socket: filepath.Join(dir, "gpu.sock"), Policy: policy},
	}}
	h.Client = api.NewClient(h.Config.Socket)
	tb.Cleanup(func() {
		h.Client.Close()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	h.GPU = h.Run(append([]string{"softgpu", "--socket", h.Config.GPUs[0].Socket}, gpuFlags...)...)
	h.await(h.GPU, func() error { _, err := os.Stat(h.Config.GPUs[0].Socket); return err })
	tb.Cleanup(h.deleteVMs)
	h.StartDaemon()
	return h
}

// StartDaemon starts the daemon, for the first time or again.
func (h *Host) StartDaemon() {
	h.tb.Helper()
	text, err := yaml.Marshal(h.Config)
	if err != nil {
		h.tb.Fatal(err)
	}
	config := filepath.Join(h.Dir, "vgpud.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		h.tb.Fatal(err)
	}
	h.Daemon = h.Run("serve", "--config", config)
	h.await(h.Daemon, func() error { _, err := h.Client.Health(h.tb.Context()); return err })
}

// deleteVMs ends the guests, which would outlive the daemon.
func (h *Host) deleteVMs() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	vms, err := h.Client.VMs(ctx)
	if err != nil {
		h.tb.Error(err)
	}
	for _, v := range vms {
		if err := h.Client.DeleteVM(ctx, v.Name); err != nil {
			h.tb.Error(err)
		}
	}
}

// Run runs a process of the program.
func (h *Host) Run(args ...string) *Process {
	h.tb.Helper()
	p := &Process{Cmd: exec.Command(h.program, args...), ended: make(chan struct{})}
	p.Cmd.Stderr = &p.log
	if err := p.Cmd.Start(); err != nil {
		h.tb.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.ended)
	}()
	h.tb.Cleanup(func() {
		if err := p.Kill(); err != nil {
			h.tb.Error(err)
		}
		if h.tb.Failed() {
			h.tb.Logf("log of %v:\n%s", args, p.log.String())
		}
	})
	return p
}

// await asks until the answer is good.
func (h *Host) await(p *Process, ask func() error) {
	h.tb.Helper()
	h.Until("an answer of "+p.Cmd.Args[1], func() error {
		select {
		case <-p.ended:
			h.tb.Fatalf("%v ended: %v", p.Cmd.Args, p.err)
		default:
		}
		return ask()
	})
}

// Until asks again and again until there is no error, or the test fails.
func (h *Host) Until(what string, ask func() error) {
	h.tb.Helper()
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			h.tb.Fatalf("waited %v for %s: %v", startLimit, what, err)
		}
	}
}

// NewGuest makes a virtual GPU and attaches to it as a guest does.
func (h *Host) NewGuest(s api.VMSpec) *driver.Device {
	h.tb.Helper()
	if s.BAR2Bytes == 0 {
		s.BAR2Bytes = 64 << 20
	}
	v, err := h.Client.CreateVM(h.tb.Context(), s)
	if err != nil {
		h.tb.Fatal(err)
	}
	return h.Attach(v.Socket)
}

// Attach attaches to a virtual GPU that there is.
func (h *Host) Attach(socket string) *driver.Device {
	h.tb.Helper()
	bus, err := driver.DialVFIOUser(h.tb.Context(), socket)
	if err != nil {
		h.tb.Fatal(err)
	}
	dev, err := driver.Open(h.tb.Context(), bus)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.tb.Cleanup(func() {
		if err := dev.Close(); err != nil && !errors.Is(err, driver.ErrGone) {
			h.tb.Error(err)
		}
	})
	return dev
}

// VM asks the daemon about a guest.
func (h *Host) VM(name string) api.VM {
	h.tb.Helper()
	v, err := h.Client.VM(h.tb.Context(), name)
	if err != nil {
		h.tb.Fatal(err)
	}
	return v
}
