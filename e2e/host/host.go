package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// startLimit is how long a process may take to answer.
const startLimit = 10 * time.Minute

// patience is for what takes a GPU in software, which has half a busy processor or less,
// seconds of its time, and is much longer than that takes beside twenty busy processes:
// what comes late is no fault.
const patience = 10 * time.Minute

var built struct {
	sync.Mutex
	dir      string
	programs []string
}

// Programs builds vgpud and vgpuctl and, of this tree's other programs, those that
// are named, each once a test binary and as `make build` does, and returns the
// directory that they are in. A package's TestMain calls [Cleanup] last.
func Programs(others ...string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "vgpud-e2e-")
		if err != nil {
			return "", err
		}
		// Guests' processes have users of their own, who execute what is in it.
		if err := os.Chmod(dir, 0o711); err != nil {
			return "", err
		}
		built.dir = dir
	}
	var static, dynamic []string
	for _, name := range append([]string{"vgpud", "vgpuctl"}, others...) {
		switch {
		case slices.Contains(built.programs, name):
		case name == "vgpu-libvirt", name == "vgpu-nvml": // libraries in C
			dynamic = append(dynamic, name)
		default:
			static = append(static, name)
		}
	}
	return built.dir, errors.Join(buildPrograms("0", static), buildPrograms("1", dynamic))
}

// buildPrograms builds programs with cgo or without.
func buildPrograms(cgo string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	args := []string{"build", "-tags", "libvirt_dlopen", "-o", built.dir + "/"}
	for _, name := range names {
		args = append(args, "vgpud/cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	built.programs = append(built.programs, names...)
	return nil
}

// Cleanup removes what was built. A package's TestMain calls it last.
func Cleanup() error {
	built.Lock()
	defer built.Unlock()
	dir := built.dir
	built.dir, built.programs = "", nil
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

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
	// Patience is how long [Host.Until] waits, ten minutes unless it is set.
	Patience time.Duration
	made     []int // the guests' processes
}

// Start starts a soft GPU and the daemon, which share by policy. They end with
// the test; where it fails, their logs are shown.
func Start(tb testing.TB, policy string, gpuFlags ...string) *Host {
	tb.Helper()
	return StartGPUs(tb, 1, policy, gpuFlags...)
}

// StartGPUs is Start with several soft GPUs, which all have the same flags.
func StartGPUs(tb testing.TB, n int, policy string, gpuFlags ...string) *Host {
	tb.Helper()
	bin, err := Programs()
	if err != nil {
		tb.Fatal(err)
	}
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		tb.Fatal(err)
	}
	// As the service manager makes it: VMMs and guests' processes pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	h := &Host{tb: tb, program: filepath.Join(bin, "vgpud"), Dir: dir, Patience: patience}
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

// softgpu is the command line of a soft GPU, to which guests' processes may connect
// though they have users of their own.
func softgpu(socket string, flags []string) []string {
	args := []string{"softgpu", "--socket", socket}
	if os.Geteuid() == 0 {
		args = append(args, "--group", strconv.Itoa(sandbox.DefaultUIDs.Group()))
	}
	return append(args, flags...)
}

// StartGPU starts the soft GPU, for the first time or again after its end.
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

// StartDaemon starts the daemon, for the first time or again after its end.
func (h *Host) StartDaemon() {
	h.tb.Helper()
	h.Daemon = h.start("serve", "--config", h.WriteConfig())
	h.await(h.Daemon, func() error { _, err := h.Client.Health(h.tb.Context()); return err })
}

// WriteConfig writes the daemon's configuration, which it reads when it starts
// and on SIGHUP.
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

// deleteVMs ends the guests, which outlive the daemon.
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
	for _, pid := range h.made {
		// Only what still is the program: numbers of processes are used again.
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == h.program {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				h.tb.Error(err)
			}
		}
	}
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

// Until asks again and again until there is no error, or the test fails for want of
// Patience. Then it says what all that takes part is doing, and ends the host's processes.
func (h *Host) Until(what string, ask func() error) {
	h.tb.Helper()
	if err := until(h.Patience, ask); err != nil {
		h.tb.Fatalf("waited %v for %s: %v\n%s", h.Patience, what, err, h.state())
	}
}

// Until asks again and again until there is no error, or the test fails.
func Until(tb testing.TB, patience time.Duration, what string, ask func() error) {
	tb.Helper()
	if err := until(patience, ask); err != nil {
		tb.Fatalf("waited %v for %s: %v", patience, what, err)
	}
}

// until asks again and again until there is no error, and returns the last after patience.
func until(patience time.Duration, ask func() error) error {
	deadline := time.NewTimer(patience)
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

// NewVM makes a virtual GPU, which has 64 MiB of shared memory unless s says
// otherwise.
func (h *Host) NewVM(s api.VMSpec) api.VM {
	h.tb.Helper()
	if s.BAR2Bytes == 0 {
		s.BAR2Bytes = 64 << 20
	}
	v, err := h.Client.CreateVM(h.tb.Context(), s)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.made = append(h.made, v.PID)
	return v
}

// NewGuest makes a virtual GPU and attaches to it as a guest does.
func (h *Host) NewGuest(s api.VMSpec) *driver.Device {
	h.tb.Helper()
	return h.Attach(h.NewVM(s).Socket)
}

// Attach attaches to a virtual GPU that there is.
func (h *Host) Attach(socket string) *driver.Device {
	h.tb.Helper()
	var bus driver.Bus
	// Clients that came before may have left without that having been seen.
	h.Until("a connection to "+socket, func() (err error) {
		bus, err = driver.DialVFIOUser(h.tb.Context(), socket)
		return err
	})
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
