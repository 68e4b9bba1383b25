package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/ipc"
	"vgpud/mediator/sandbox"
)

const aGPU = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"

// nvidiaGPU is a GPU that does nothing, with the UUID of aGPU.
type nvidiaGPU struct{ idleGPU }

func (g nvidiaGPU) Properties() gpu.Properties {
	p := g.idleGPU.Properties()
	for i := range p.UUID {
		p.UUID[i] = byte(i + 1)
	}
	return p
}

// newDevice returns a service that does not run, with one GPU.
func newDevice(t *testing.T, kind string, log *slog.Logger) (*Service, *device) {
	t.Helper()
	s := &Service{
		ledger: budget.Open(budget.Options{Path: filepath.Join(t.TempDir(), budgetsFile), Log: slog.New(slog.DiscardHandler), Now: time.Now}),
		clock:  clock.Real{}, log: log, guests: make(map[string]*guest), silent: make(map[string]*silentGuest), pending: make(map[string]*pendingVM),
		o: Options{Open: func(context.Context, ipc.GPU) (gpu.Monitor, error) { return nvidiaGPU{}, nil }},
	}
	var err error
	if s.sandboxes, err = sandbox.NewManager(sandbox.Options{Mode: sandbox.Off}); err != nil {
		t.Fatal(err)
	}
	d, err := s.openDevice(t.Context(), GPUConfig{Name: "gpu0", Kind: kind, Policy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	s.devices = []*device{d}
	return s, d
}

// newNVIDIA returns a service with one GPU of NVIDIA's driver, and its log.
func newNVIDIA(t *testing.T) (*Service, *device, *strings.Builder) {
	var log strings.Builder
	s, d := newDevice(t, kindNVIDIA, slog.New(slog.NewTextHandler(&log, nil)))
	return s, d, &log
}

func report(d *device, messages ...inventory.Message) {
	for i := range messages {
		d.report(&messages[i], d.log)
	}
}

func TestHardwareIsShown(t *testing.T) {
	_, d, _ := newNVIDIA(t)
	mine := inventory.Sample{UUID: aGPU, TemperatureCelsius: new(31.), MemoryUsedBytes: new(uint64(1 << 30)), Throttled: []string{"power-cap"}, Recovery: inventory.RecoveryNone}
	list := inventory.Message{Inventory: &inventory.Inventory{Driver: "580.159.04", CUDA: 13010, GPUs: []inventory.GPU{
		{UUID: "GPU-another", PCI: "0000:01:00.0"}, {UUID: aGPU, PCI: "0000:05:00.0", MIG: "off", ComputeMode: "default", Persistence: "on"},
	}}}
	report(d, list, inventory.Message{Samples: []inventory.Sample{{UUID: "GPU-another", Lost: true}, mine}}, inventory.Message{Xid: &inventory.XidEvent{UUID: "GPU-another", Xid: 79}})
	want := &api.Hardware{
		UUID: aGPU, PCI: "0000:05:00.0", Driver: "580.159.04", CUDA: "13.1", MIG: "off", Persistence: "on", ComputeMode: "default",
		TemperatureCelsius: new(31.), MemoryUsedBytes: new(uint64(1 << 30)), Throttled: []string{"power-cap"},
	}
	shown := func() {
		t.Helper()
		if g := d.gpu(); !g.Healthy || !cmp.Equal(want, g.Hardware) {
			t.Errorf("healthy: %v (%s), -want +got:\n%s", g.Healthy, g.Problem, cmp.Diff(want, g.Hardware))
		}
	}
	shown()

	// Without the program old values are not shown as if they were new.
	report(d, inventory.Message{Error: &inventory.Problem{Text: "vgpu-nvml ended"}})
	want.Problem, want.TemperatureCelsius, want.MemoryUsedBytes, want.Throttled = "vgpu-nvml ended", nil, nil, nil
	shown()

	report(d, inventory.Message{Inventory: &inventory.Inventory{Driver: "610.1", GPUs: []inventory.GPU{{UUID: aGPU, MIG: "on", ComputeMode: "prohibited"}}}})
	warnings := strings.Join(d.gpu().Hardware.Warnings, "\n")
	for _, w := range []string{"driver 610.1 is not known to this version of vgpud, nearest is 580.", "MIG is on", "compute mode is prohibited"} {
		if !strings.Contains(warnings, w) {
			t.Errorf("no warning %q in:\n%s", w, warnings)
		}
	}
	report(d, inventory.Message{Inventory: &inventory.Inventory{Driver: "580.1"}})
	if h := d.gpu().Hardware; h.Problem != "the driver's list of GPUs has no "+aGPU {
		t.Errorf("a GPU that is not in the list: %q", h.Problem)
	}
}

// TestErrorsOfGPUs: a guest's error is counted and logged. An error that ends the GPU makes it
// unhealthy, and no guest is placed there, until the driver asks for no recovery.
func TestErrorsOfGPUs(t *testing.T) {
	s, d, log := newNVIDIA(t)
	xid := func(n uint64) inventory.Message {
		return inventory.Message{Xid: &inventory.XidEvent{UUID: aGPU, Xid: n}}
	}
	report(d, xid(31), xid(31))
	if g := d.gpu(); !g.Healthy || !s.capacity(d, "").healthy {
		t.Errorf("after a page fault: %s", g.Problem)
	}
	report(d, xid(79))
	g := d.gpu()
	if g.Healthy || !strings.HasPrefix(g.Problem, "Xid 79: the GPU has fallen off the bus: reboot") {
		t.Errorf("healthy: %v, problem %q", g.Healthy, g.Problem)
	}
	if s.capacity(d, "").healthy {
		t.Error("guests are still put there")
	}
	if want := []api.XidCount{{Xid: 31, Count: 2, Text: inventory.LookUp(31).String()}, {Xid: 79, Count: 1, Text: inventory.LookUp(79).String()}}; !cmp.Equal(want, g.Hardware.Xids) {
		t.Errorf("errors, -want +got:\n%s", cmp.Diff(want, g.Hardware.Xids))
	}
	fine := inventory.Message{Samples: []inventory.Sample{{UUID: aGPU, Recovery: inventory.RecoveryNone}}}
	report(d, fine, fine)
	if g := d.gpu(); !g.Healthy {
		t.Errorf("when the driver asks for no recovery: %s", g.Problem)
	}
	for _, line := range []string{
		`level=WARN msg="error on a GPU" event=gpu-error gpu=gpu0 xid=31 what="a kernel or copy used an address that is not mapped" do=""`,
		`level=ERROR msg="GPU can't be used" event=gpu-failed gpu=gpu0 err="Xid 79`,
		`level=INFO msg="GPU can be used again" event=gpu-recovered gpu=gpu0`,
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log has no %s:\n%s", line, log)
		}
	}
}

// TestSoftGPUsHaveNoHardware: NVIDIA's driver is not asked about them.
func TestSoftGPUsHaveNoHardware(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, soft := newDevice(t, kindSoft, log)
	_, nvidia := newDevice(t, kindNVIDIA, log)
	asked := 0
	s.o.Inventory = func(_ context.Context, f func(inventory.Message)) error {
		asked++
		f(inventory.Message{Inventory: &inventory.Inventory{Driver: "580.1"}})
		return errors.New("the program is not there")
	}
	s.followInventory(t.Context())
	s.devices = append(s.devices, nvidia)
	s.followInventory(t.Context())
	if asked != 1 || soft.gpu().Hardware != nil {
		t.Errorf("asked %d times; hardware of a soft GPU: %+v", asked, soft.gpu().Hardware)
	}
	if h := nvidia.gpu().Hardware; h == nil || h.Problem != "the program is not there" {
		t.Errorf("hardware without the program: %+v", h)
	}
}

// gate is a GPU that opens when as many as want are about to, and counts those that are closed.
type gate struct {
	want            int32
	opening, closed atomic.Int32
	all             chan struct{}
}

func (g *gate) open(ctx context.Context, which ipc.GPU) (gpu.Monitor, error) {
	if g.opening.Add(1) == g.want {
		close(g.all)
	}
	select {
	case <-g.all:
	case <-ctx.Done():
		return nil, errors.New("the others are not opened meanwhile")
	}
	if which.Socket == "missing" {
		return nil, gpu.ErrLost
	}
	return closingGPU{closed: &g.closed}, nil
}

// closingGPU is a GPU that does nothing and counts its end.
type closingGPU struct {
	idleGPU
	closed *atomic.Int32
}

func (g closingGPU) Close() error {
	g.closed.Add(1)
	return nil
}

// TestGPUsAreOpenedAtOnce: a daemon that starts waits for its GPUs together, has them in the order of
// its configuration, and gives the others back if one of them can't be opened.
func TestGPUsAreOpenedAtOnce(t *testing.T) {
	names := []string{"gpu0", "gpu1", "gpu2"}
	for _, missing := range []int{-1, 0, 2} {
		g := &gate{want: int32(len(names)), all: make(chan struct{})}
		dir := runDir(t)
		o := Options{
			Config: Config{RunDir: dir, StateDir: dir, Socket: filepath.Join(dir, "vgpud.sock")},
			Log:    slog.New(slog.DiscardHandler), Version: "test", Open: g.open, Command: func() *exec.Cmd { return inRole("vm") },
		}
		for i, name := range names {
			c := GPUConfig{Name: name, Kind: kindSoft, Socket: "unused", Policy: "none"}
			if i == missing {
				c.Socket = "missing"
			}
			o.Config.GPUs = append(o.Config.GPUs, c)
		}
		o.Config.Confinement.Mode = "off"
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		s, err := New(ctx, o)
		cancel()
		if missing >= 0 {
			if err == nil || !errors.Is(err, gpu.ErrLost) || !strings.Contains(err.Error(), names[missing]) {
				t.Errorf("without %s: %v", names[missing], err)
			}
			if n := g.closed.Load(); n != 2 {
				t.Errorf("without %s %d GPUs are given back, want 2", names[missing], n)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range s.devices {
			got = append(got, d.config.Name)
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
