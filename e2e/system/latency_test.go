package system

import (
	"fmt"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestLatencyInAGuest: a guest is told within what time its kernels should leave the GPU, as guests
// of a higher priority come and go, under a policy that goes by priority.
func TestLatencyInAGuest(t *testing.T) {
	h := host.Start(t, "piv")
	bus, err := driver.DialVFIOUser(t.Context(), h.NewVM(api.VMSpec{Name: "batch"}).Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	}()
	told := func(when string, want time.Duration) {
		t.Helper()
		h.Until(fmt.Sprintf("%v, %s", want, when), func() error {
			got, err := bus.Read(abi.RegLatencyNanos)
			if err == nil && time.Duration(got) != want {
				err = fmt.Errorf("it is told %v", time.Duration(got))
			}
			return err
		})
	}
	told("with nobody above it", 0)
	h.NewVM(api.VMSpec{Name: "urgent", PriorityCeiling: 3})
	told("below a guest that says nothing", 100*time.Microsecond)
	latency := 40 * time.Microsecond
	if _, err := h.Client.UpdateVM(t.Context(), "urgent", api.VMUpdate{Latency: &latency}); err != nil {
		t.Fatal(err)
	}
	told("below one that wants that", latency)
	policy := "dfq"
	if _, err := h.Client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	told("under a policy without priorities", 0)
	policy = "hpf"
	if _, err := h.Client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	told("under hpf", latency)
	if err := h.Client.DeleteVM(t.Context(), "urgent"); err != nil {
		t.Fatal(err)
	}
	told("alone again", 0)
}
