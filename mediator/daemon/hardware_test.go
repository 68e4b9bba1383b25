package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
)

const aGPU = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"

// drivenScene is a share whose GPU NVIDIA's driver drives, and its log.
func drivenScene(t *testing.T) (*share, *strings.Builder) {
	sh := newScene(t).share
	var log strings.Builder
	sh.config.Kind = kindNVIDIA
	sh.log = slog.New(slog.NewTextHandler(&log, nil))
	for i := range sh.opened.props.UUID {
		sh.opened.props.UUID[i] = byte(i + 1)
	}
	return sh, &log
}

func heard(sh *share, messages ...inventory.Message) {
	for i := range messages {
		sh.heard(&messages[i], sh.log)
	}
}

func TestHardwareIsShown(t *testing.T) {
	sh, _ := drivenScene(t)
	mine := inventory.Sample{UUID: aGPU, TemperatureCelsius: new(31.), MemoryUsedBytes: new(uint64(1 << 30)), Throttled: []string{"power-cap"}, Recovery: inventory.RecoveryNone}
	list := inventory.Message{Inventory: &inventory.Inventory{Driver: "580.159.04", CUDA: 13010, GPUs: []inventory.GPU{
		{UUID: "GPU-another", PCI: "0000:01:00.0"}, {UUID: aGPU, PCI: "0000:05:00.0", MIG: "off", ComputeMode: "default", Persistence: "on"},
	}}}
	heard(sh, list, inventory.Message{Samples: []inventory.Sample{{UUID: "GPU-another", Lost: true}, mine}}, inventory.Message{Xid: &inventory.XidEvent{UUID: "GPU-another", Xid: 79}})
	want := &api.Hardware{
		UUID: aGPU, PCI: "0000:05:00.0", Driver: "580.159.04", CUDA: "13.1", MIG: "off", Persistence: "on", ComputeMode: "default",
		TemperatureCelsius: new(31.), MemoryUsedBytes: new(uint64(1 << 30)), Throttled: []string{"power-cap"},
	}
	shown := func() {
		t.Helper()
		if g := sh.gpu(0); !g.Healthy || !cmp.Equal(want, g.Hardware) {
			t.Errorf("healthy: %v (%s), -want +got:\n%s", g.Healthy, g.Problem, cmp.Diff(want, g.Hardware))
		}
	}
	shown()

	// Without the program old values are not shown as if they were new.
	heard(sh, inventory.Message{Error: &inventory.Problem{Text: "vgpu-nvml ended"}})
	want.Problem, want.TemperatureCelsius, want.MemoryUsedBytes, want.Throttled = "vgpu-nvml ended", nil, nil, nil
	shown()

	heard(sh, inventory.Message{Inventory: &inventory.Inventory{Driver: "610.1", GPUs: []inventory.GPU{{UUID: aGPU, MIG: "on", ComputeMode: "prohibited"}}}})
	warnings := strings.Join(sh.gpu(0).Hardware.Warnings, "\n")
	for _, w := range []string{"driver 610.1 is not known to this version of vgpud, nearest is 580.", "MIG is on", "compute mode is prohibited"} {
		if !strings.Contains(warnings, w) {
			t.Errorf("no warning %q in:\n%s", w, warnings)
		}
	}
	heard(sh, inventory.Message{Inventory: &inventory.Inventory{Driver: "580.1"}})
	if h := sh.gpu(0).Hardware; h.Problem != "the driver's list of GPUs has no "+aGPU {
		t.Errorf("a GPU that is not in the list: %q", h.Problem)
	}
}

// TestErrorsOfGPUs: a guest's error is counted and logged; one that ends the GPU
// makes it unhealthy, and no place for guests, until the driver wants nothing done.
func TestErrorsOfGPUs(t *testing.T) {
	sh, log := drivenScene(t)
	s := &Service{shares: []*share{sh}, unborn: make(map[string]*unborn)}
	xid := func(n uint64) inventory.Message {
		return inventory.Message{Xid: &inventory.XidEvent{UUID: aGPU, Xid: n}}
	}
	heard(sh, xid(31), xid(31))
	if g := sh.gpu(0); !g.Healthy || !s.room(sh, "").healthy {
		t.Errorf("after a page fault: %s", g.Problem)
	}
	heard(sh, xid(79))
	g := sh.gpu(0)
	if g.Healthy || !strings.HasPrefix(g.Problem, "Xid 79: the GPU has fallen off the bus: reboot") {
		t.Errorf("healthy: %v, problem %q", g.Healthy, g.Problem)
	}
	if s.room(sh, "").healthy {
		t.Error("guests are still put there")
	}
	if want := []api.XidCount{{Xid: 31, Count: 2, Text: inventory.LookUp(31).String()}, {Xid: 79, Count: 1, Text: inventory.LookUp(79).String()}}; !cmp.Equal(want, g.Hardware.Xids) {
		t.Errorf("errors, -want +got:\n%s", cmp.Diff(want, g.Hardware.Xids))
	}
	fine := inventory.Message{Samples: []inventory.Sample{{UUID: aGPU, Recovery: inventory.RecoveryNone}}}
	heard(sh, fine, fine)
	if g := sh.gpu(0); !g.Healthy {
		t.Errorf("when the driver wants nothing done: %s", g.Problem)
	}
	for _, line := range []string{
		`level=WARN msg="error on a GPU" gpu=gpu0 xid=31 what="a kernel or copy used an address that is not mapped" do=""`,
		`level=ERROR msg="GPU can't be used" gpu=gpu0 err="Xid 79`,
		`level=INFO msg="GPU can be used again" gpu=gpu0`,
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log has no %s:\n%s", line, log)
		}
	}
}

// TestSoftGPUsHaveNoHardware: nobody asks NVIDIA's driver about them.
func TestSoftGPUsHaveNoHardware(t *testing.T) {
	soft, driven := newScene(t).share, newScene(t).share
	driven.config.Kind = kindNVIDIA
	asked := 0
	s := &Service{log: slog.New(slog.DiscardHandler), clock: &clock.Sim{}, shares: []*share{soft}, o: Options{
		Inventory: func(_ context.Context, f func(inventory.Message)) error {
			asked++
			f(inventory.Message{Inventory: &inventory.Inventory{Driver: "580.1"}})
			return errors.New("the program is not there")
		},
	}}
	s.followInventory(t.Context())
	s.shares = append(s.shares, driven)
	s.followInventory(t.Context())
	if asked != 1 || soft.gpu(0).Hardware != nil {
		t.Errorf("asked %d times; hardware of a soft GPU: %+v", asked, soft.gpu(0).Hardware)
	}
	if h := driven.gpu(0).Hardware; h == nil || h.Problem != "the program is not there" {
		t.Errorf("hardware without the program: %+v", h)
	}
}
