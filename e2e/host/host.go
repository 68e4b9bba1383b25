package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/daemon"
	"vgpud/mediator/sandbox"
)

// GPUName is the name of a host's first GPU; the next is "gpu1".
const GPUName = "gpu0"

// startLimit bounds the time until a process answers.
const startLimit = 10 * time.Minute

// defaultTimeout is for conditions that take a soft GPU seconds of work. It may get half a busy
// processor or less, and take much longer beside twenty busy processes, so that being slow is no
// failure.
const defaultTimeout = 10 * time.Minute

// Host is a running vgpud.
type Host struct {
	tb      testing.TB
	program string
	Dir     string
	GPU     *Process   // the first
	GPUs    []*Process // all, in the order of Config.GPUs
	Daemon  *Process
	Client  *api.Client
	Config  daemon.Config
	// Timeout is how long [Host.Until] waits; the default is ten minutes.
	Timeout time.Duration
	// Describe, if set, returns what else the message says about a wait that has failed. It is called
	// while all processes still run.
	Describe func() string
	vmPIDs   []int // the guests' processes
}

// Start starts a soft GPU and the daemon, which shares it by policy. They end with the test; if it
// fails, their logs are shown.
func Start(tb testing.TB, policy string, gpuFlags ...string) *Host {
	tb.Helper()
	return StartGPUs(tb, 1, policy, gpuFlags...)
}

// StartGPUs is Start with several soft GPUs that have the same flags.
func StartGPUs(tb testing.TB, n int, policy string, gpuFlags ...string) *Host {
	tb.Helper()
	bin, err := Programs()
	if err != nil {
		tb.Fatal(err)
	}
	// Socket paths must be short.
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		tb.Fatal(err)
	}
	// As the service manager creates it: VMMs and guests' processes must be able to pass.
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	h := &Host{tb: tb, program: filepath.Join(bin, "vgpud"), Dir: dir, Timeout: defaultTimeout}
	h.Config = daemon.Config{RunDir: dir, Socket: filepath.Join(dir, "vgpud.sock")}
	for i := range n {
		name := fmt.Sprintf("gpu%d", i)
		h.Config.GPUs = append(h.Config.GPUs, daemon.GPUConfig{
			Name: name, Kind: "soft", Socket: filepath.Join(dir, name+".sock"), Policy: policy,
		})
	}
	h.Client = api.NewClient(h.Config.Socket)
	tb.Cleanup(func() {
		h.Client.Close()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	for _, g := range h.Config.GPUs {
		p := h.Run(softgpu(g.Socket, gpuFlags)...)
		h.await(p, func() error { _, err := os.Stat(g.Socket); return err })
		h.GPUs = append(h.GPUs, p)
	}
	h.GPU = h.GPUs[0]
	h.StartDaemon()
	tb.Cleanup(func() {
		h.deleteVMs()
		h.kill(h.Daemon)
	})
	return h
}

// softgpu returns the command line of a soft GPU to which guests' processes, which have users of
// their own, may connect.
func softgpu(socket string, flags []string) []string {
	args := []string{"softgpu", "--socket", socket}
	if os.Geteuid() == 0 {
		args = append(args, "--group", strconv.Itoa(sandbox.DefaultUIDs.Group()))
	}
	return append(args, flags...)
}

// StartGPU starts the soft GPU, initially or after its end.
func (h *Host) StartGPU(flags ...string) {
	h.tb.Helper()
	socket := h.Config.GPUs[0].Socket
	h.GPU = h.Run(softgpu(socket, flags)...)
	h.await(h.GPU, func() error {
		c, err := net.Dial("unixpacket", socket)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// StartDaemon starts the daemon, initially or after its end, and waits until it answers.
func (h *Host) StartDaemon() {
	h.tb.Helper()
	h.SpawnDaemon()
	h.await(h.Daemon, func() error { _, err := h.Client.Health(h.tb.Context()); return err })
}

// SpawnDaemon starts the daemon and does not wait for its answer.
func (h *Host) SpawnDaemon() {
	h.tb.Helper()
	h.Daemon = h.start("serve", "--config", h.WriteConfig())
}

// WriteConfig writes the daemon's configuration, which the daemon reads when it starts and on
// SIGHUP.
func (h *Host) WriteConfig() (path string) {
	h.tb.Helper()
	text, err := yaml.Marshal(h.Config)
	if err != nil {
		h.tb.Fatal(err)
	}
	path = filepath.Join(h.Dir, "vgpud.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		h.tb.Fatal(err)
	}
	return path
}

// deleteVMs ends the guests' processes, which outlive the daemon.
func (h *Host) deleteVMs() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	vms, err := h.Client.VMs(ctx)
	for _, v := range vms {
		err = errors.Join(err, h.Client.ForceDeleteVM(ctx, v.Name))
	}
	if err == nil {
		return
	}
	h.tb.Error(err)
	for _, pid := range h.vmPIDs {
		// Check that the process still is the program: process IDs are reused.
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == h.program {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				h.tb.Error(err)
			}
		}
	}
}

// await calls ask until it succeeds.
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

// Until calls ask until it returns nil, or fails the test after Timeout. Then it logs the state of
// all processes and ends them.
func (h *Host) Until(what string, ask func() error) {
	h.tb.Helper()
	if err := until(h.Timeout, ask); err != nil {
		h.tb.Fatalf("waited %v for %s: %v\n%s", h.Timeout, what, err, h.state())
	}
}

// Until calls ask until it returns nil, or fails the test after a timeout.
func Until(tb testing.TB, timeout time.Duration, what string, ask func() error) {
	tb.Helper()
	if err := until(timeout, ask); err != nil {
		tb.Fatalf("waited %v for %s: %v", timeout, what, err)
	}
}

// until calls ask until it returns nil, or returns its last error after a timeout.
func until(timeout time.Duration, ask func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return err
		}
	}
}

// NewVM creates a virtual GPU with 64 MiB of shared memory, unless s has another size.
func (h *Host) NewVM(s api.VMSpec) api.VM {
	h.tb.Helper()
	if s.BAR2Bytes == 0 {
		s.BAR2Bytes = 64 << 20
	}
	v, err := h.Client.CreateVM(h.tb.Context(), s)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.vmPIDs = append(h.vmPIDs, v.PID)
	return v
}

// NewGuest creates a virtual GPU and attaches to it as a guest does.
func (h *Host) NewGuest(s api.VMSpec) *driver.Device {
	h.tb.Helper()
	return h.Attach(h.NewVM(s).Socket)
}

// Attach attaches to an existing virtual GPU.
func (h *Host) Attach(socket string) *driver.Device {
	h.tb.Helper()
	var bus driver.Bus
	// The server may not have noticed yet that an earlier client disconnected.
	h.Until("a connection to "+socket, func() (err error) {
		bus, err = driver.DialVFIOUser(h.tb.Context(), socket)
		return err
	})
	dev, err := driver.Open(h.tb.Context(), bus)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.tb.Cleanup(func() {
		err := dev.Close()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			h.tb.Errorf("%v\n%s", err, h.state())
		case err != nil && !errors.Is(err, driver.ErrGone):
			h.tb.Error(err)
		}
	})
	return dev
}

// VM returns the daemon's description of a guest.
func (h *Host) VM(name string) api.VM {
	h.tb.Helper()
	v, err := h.Client.VM(h.tb.Context(), name)
	if err != nil {
		h.tb.Fatal(err)
	}
	return v
}
