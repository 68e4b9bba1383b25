package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/cmd/vgpud/child"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

const gpuName = "gpu0"

// startLimit bounds the time in which everything starts: CUDA takes up to a second for a context,
// and modules are compiled.
const startLimit = time.Minute

// testbed is the daemon on one GPU, or several, and tenants on it: guests of the daemon and programs of the
// host.
type testbed struct {
	programs, self string
	cells          string
	dir            string
	gpu            ipc.GPU
	others         []ipc.GPU // where there are several
	client         *api.Client
	daemon         *child.Process
	processes      []*child.Process // all others but tenants, in the order of their start
	members        []*member
	policy         string
	shallow        bool // suspended guests' kernels are left on the GPU
	guests         []string
}

// newTestbed starts the daemon, and before it the GPU where that is in software. The caller closes
// it, also after an error.
func newTestbed(ctx context.Context, o *options) (*testbed, error) {
	dir, err := os.MkdirTemp("", "vgpud-") // paths of sockets are short
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	// Executors have users of their own, and sockets in it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	h := &testbed{programs: o.programs, self: o.self, cells: o.cells, dir: dir, gpu: ipc.GPU{Name: gpuName, Kind: o.kind, Device: o.device}, policy: "none"}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if o.several() {
		h.addOthers(o)
	}
	if o.kind == "soft" {
		if err := h.startSoft(ctx, &h.gpu); err != nil {
			return h, err
		}
		for i := range h.others {
			if err := h.startSoft(ctx, &h.others[i]); err != nil {
				return h, err
			}
		}
	}
	return h, h.startDaemon(ctx)
}

// addOthers has the testbed use all GPUs, or two where they are in software.
func (h *testbed) addOthers(o *options) {
	devices := o.devices
	if o.kind == "soft" {
		devices = make([]string, 2)
	}
	for i, d := range devices {
		if i == 0 {
			h.gpu.Device = d
			continue
		}
		h.others = append(h.others, ipc.GPU{Name: fmt.Sprintf("gpu%d", i), Kind: o.kind, Device: d})
	}
}

// startSoft starts a GPU in software.
func (h *testbed) startSoft(ctx context.Context, g *ipc.GPU) error {
	g.Socket = filepath.Join(h.dir, g.Name+".sock")
	p, err := h.start("soft"+g.Name, exec.Command(h.vgpud(), "softgpu", "--socket", g.Socket, "--mode", "slices"))
	if err != nil {
		return err
	}
	return child.WaitUntil(ctx, p, func() error { _, err := os.Stat(g.Socket); return err })
}

// program returns the path of one of vgpud's programs.
func (h *testbed) program(name string) string { return filepath.Join(h.programs, name) }

func (h *testbed) vgpud() string { return h.program("vgpud") }

func (h *testbed) start(name string, cmd *exec.Cmd) (*child.Process, error) {
	p, err := child.Start(h.dir, name, cmd)
	if err == nil {
		h.processes = append(h.processes, p)
	}
	return p, err
}

// configure writes the daemon's configuration.
func (h *testbed) configure() (path string, err error) {
	var gpus []any
	for _, x := range append([]ipc.GPU{h.gpu}, h.others...) {
		g := map[string]any{"name": x.Name, "kind": x.Kind, "policy": h.policy}
		if x.Socket != "" {
			g["socket"] = x.Socket
		}
		if x.Device != "" {
			g["device"] = x.Device
		}
		if h.shallow {
			g["deep_after"] = "none"
		}
		gpus = append(gpus, g)
	}
	config := map[string]any{"run_dir": h.dir, "libvirt": "off", "kernel_time_limit": kernelTimeLimit.String(), "gpus": gpus}
	if h.cells != "" {
		config["confinement"] = map[string]any{"mode": h.cells}
	}
	text, err := yaml.Marshal(config)
	path = filepath.Join(h.dir, "vgpud.yaml")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the daemon's configuration: %w", err)
	}
	return path, nil
}

// startDaemon starts the daemon under the policy, for the first time or again: it finds the guests
// that there are.
func (h *testbed) startDaemon(ctx context.Context) error {
	path, err := h.configure()
	if err != nil {
		return err
	}
	if h.daemon, err = child.Start(h.dir, "serve", exec.Command(h.vgpud(), "serve", "--config", path)); err != nil {
		return err
	}
	if h.client == nil {
		h.client = api.NewClient(filepath.Join(h.dir, "vgpud.sock"))
	}
	return child.WaitUntil(ctx, h.daemon, func() error { _, err := h.client.Health(ctx); return err })
}

// kernelTimeLimit is the time limit of the guests' kernels.
const kernelTimeLimit = time.Second

// stopDaemon has the daemon end; the guests go on.
func (h *testbed) stopDaemon() error {
	if h.daemon == nil {
		return nil
	}
	err := h.daemon.End()
	h.daemon = nil
	return err
}

// setPolicy changes how the GPU is shared.
func (h *testbed) setPolicy(ctx context.Context, policy string) error {
	h.policy = policy
	_, err := h.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy})
	return err
}

// setShallow has the kernels of guests that are suspended left on the GPU to their end, as LoGA has
// to, or taken off it.
func (h *testbed) setShallow(ctx context.Context, shallow bool) error {
	if h.shallow == shallow {
		return nil
	}
	h.shallow = shallow
	if _, err := h.configure(); err != nil {
		return err
	}
	if err := h.daemon.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		return fmt.Errorf("have the daemon read its configuration: %w", err)
	}
	const reading = 100 * time.Millisecond
	return rest(ctx, reading)
}

// seat describes a guest to be made.
type seat struct {
	spec  api.VMSpec
	setup tenant.Setup
}

// open makes guests and starts a tenant in each, all at a time.
func (h *testbed) open(ctx context.Context, seats ...seat) ([]*member, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var all []*member
	for _, s := range seats {
		s.spec.Name = s.setup.Name
		if s.spec.BAR2Bytes == 0 {
			s.spec.BAR2Bytes = 64 << 20
		}
		v, err := h.client.CreateVM(ctx, s.spec)
		if err != nil {
			return nil, err
		}
		h.guests = append(h.guests, v.Name)
		s.setup.Socket = v.Socket
		m, err := h.tenant(s.setup)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, h.await(ctx, all)
}

// guest makes one guest of weight 1.
func (h *testbed) guest(ctx context.Context, setup tenant.Setup) (*member, error) {
	all, err := h.open(ctx, seat{setup: setup})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// native starts a program of the host, which has the GPU beside the daemon's guests.
func (h *testbed) native(ctx context.Context, name string, env ...string) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	m, err := h.tenant(tenant.Setup{Name: name, GPU: h.gpu}, env...)
	if err != nil {
		return nil, err
	}
	return m, h.await(ctx, []*member{m})
}

// controlled starts a program of the host that uses the GPU as executors do.
func (h *testbed) controlled(ctx context.Context, name string) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	m, err := h.tenant(tenant.Setup{Name: name, GPU: h.gpu, Controlled: true})
	if err != nil {
		return nil, err
	}
	return m, h.await(ctx, []*member{m})
}

func (h *testbed) tenant(s tenant.Setup, env ...string) (*member, error) {
	cmd := exec.Command(h.self, "tenant")
	cmd.Env = append(os.Environ(), env...)
	m, err := newMember(h.dir, cmd, s)
	if m != nil { // to be ended, also where it could not be told its setup
		h.members = append(h.members, m)
	}
	return m, err
}

// await waits until all tenants are ready.
func (h *testbed) await(ctx context.Context, all []*member) error {
	for _, m := range all {
		if _, err := m.answer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leave ends tenants, and takes the virtual GPUs of those that are guests away.
func (h *testbed) leave(ctx context.Context, all ...*member) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.end())
		h.members = slices.DeleteFunc(h.members, func(o *member) bool { return o == m })
		if i := slices.Index(h.guests, m.name); i >= 0 {
			h.guests = slices.Delete(h.guests, i, i+1)
			if err := h.client.ForceDeleteVM(ctx, m.name); err != nil && !errors.Is(err, api.ErrNotFound) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// task is a run of a tenant.
type task struct {
	*member
	run tenant.Run
}

// lead is how long before their common start tenants are told of it.
const lead = 30 * time.Millisecond

// together runs tasks that all begin at the same instant.
func together(ctx context.Context, tasks ...task) ([]*tenant.Ran, error) {
	at := time.Now().Add(lead).UnixNano()
	rans, errs := make([]*tenant.Ran, len(tasks)), make([]error, len(tasks))
	var group sync.WaitGroup
	for i, t := range tasks {
		t.run.At += at // what it has is an offset
		group.Go(func() { rans[i], errs[i] = t.member.run(ctx, t.run) })
	}
	group.Wait()
	return rans, errors.Join(errs...)
}

// used is what accounting says that the guests have used of the GPU, in the order of the members.
func (h *testbed) used(ctx context.Context, all []*member) ([]time.Duration, error) {
	vms, err := h.client.VMs(ctx)
	if err != nil {
		return nil, err
	}
	return usedBy(vms, all)
}

func usedBy(vms []api.VM, all []*member) ([]time.Duration, error) {
	used := make([]time.Duration, len(all))
	for i, m := range all {
		at := slices.IndexFunc(vms, func(v api.VM) bool { return v.Name == m.name })
		if at < 0 {
			return nil, fmt.Errorf("%s: the daemon has no such guest", m.name)
		}
		used[i] = time.Duration(vms[at].GPUSeconds * float64(time.Second))
	}
	return used, nil
}

// accountingLag is how long after work its accounting may come: a round, and what the hardware
// needs to hand its record over.
const accountingLag = 100 * time.Millisecond

// rest sleeps for d, so that accounting can catch up.
func rest(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, clock.Real{}, d) }

// solo starts a program of the host and has do use it, while nobody else uses the GPU.
func (h *testbed) solo(ctx context.Context, do func(*member) error) error {
	m, err := h.native(ctx, "solo")
	if err == nil {
		err = do(m)
	}
	if m != nil {
		err = errors.Join(err, h.leave(ctx, m))
	}
	return err
}

// close ends everything, tenants first and the GPU last, and removes the logs unless keep is set.
func (h *testbed) close(keep bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var errs []error
	for _, m := range h.members {
		errs = append(errs, m.end())
	}
	if len(h.guests) > 0 && h.daemon == nil {
		errs = append(errs, h.startDaemon(ctx))
	}
	for _, g := range h.guests {
		if err := h.client.ForceDeleteVM(ctx, g); err != nil && !errors.Is(err, api.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, h.stopDaemon())
	for _, p := range slices.Backward(h.processes) {
		errs = append(errs, p.End())
	}
	if h.client != nil {
		h.client.Close()
	}
	if !keep {
		errs = append(errs, os.RemoveAll(h.dir))
	}
	return errors.Join(errs...)
}
