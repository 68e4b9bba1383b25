package system

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// TestTwoGPUs gives a guest virtual GPUs on two GPUs, where the daemon places them, and another
// guest one that fills the gap. Each is accounted on its own GPU, also by that GPU's own clock, and
// shares are those of the guests of one GPU.
func TestTwoGPUs(t *testing.T) {
	h := host.StartGPUs(t, 2, "dfq")
	const memory = 768 << 20 // of the GPU's 1 GiB
	placed := []struct {
		spec api.VMSpec
		gpu  string
	}{
		{api.VMSpec{Name: "web", Weight: 2}, "gpu0"},
		{api.VMSpec{Name: "web-1", GPU: api.AnyGPU}, "gpu1"},
		{api.VMSpec{Name: "db", Weight: 4}, "gpu1"}, // which has the least weight
		{api.VMSpec{Name: "big", MemoryLimitBytes: memory}, "gpu0"},
	}
	for _, p := range placed {
		p.spec.Domain = p.spec.Name[:2]
		busy(t, h, p.spec, 150)
		if v := h.VM(p.spec.Name); v.GPU != p.gpu {
			t.Errorf("%s is on %s, want %s", v.Name, v.GPU, p.gpu)
		}
	}
	// Only the other GPU has as much memory left, whatever the weights.
	busy(t, h, api.VMSpec{Name: "big-1", Weight: 0.5, MemoryLimitBytes: memory}, 150)
	if v := h.VM("big-1"); v.GPU != "gpu1" {
		t.Errorf("%s is on %s, want gpu1", v.Name, v.GPU)
	}
	if _, err := h.Client.CreateVM(t.Context(), api.VMSpec{Name: "big-2", MemoryLimitBytes: memory}); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("a guest with no room left: %v", err)
	}

	// Not in every interval: an observer that the host gives no processor misses what happens on
	// its GPU.
	before := measure(t, h)
	h.Until("an account of all guests that is the GPU's own", func() error {
		after := measure(t, h)
		for name, m := range after {
			if used := m.own - before[name].own; used < 0.25 {
				return fmt.Errorf("%s has used %.3f s", name, used)
			}
		}
		begin := before
		before = after
		return agrees(t, begin, after)
	})
	shares := make(map[string]float64)
	vms, err := h.Client.VMs(t.Context()) // at one instant
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vms {
		shares[v.GPU] += v.Share
	}
	for gpu, sum := range shares {
		if math.Abs(sum-1) > 0.1 {
			t.Errorf("shares on %s add up to %.3f", gpu, sum)
		}
	}
	gpus, err := h.Client.GPUs(t.Context())
	if err != nil || len(gpus) != 2 || gpus[0].VMs != 2 || gpus[1].VMs != 3 {
		t.Errorf("GPUs: %+v, %v", gpus, err)
	}
	for _, g := range gpus {
		t.Logf("%s: watched %.3f s, %d gaps, %.4f s of them, %.3f s of processor time", g.Name, g.WatchedSeconds, g.Gaps, g.GapSeconds, g.AccountingCPUSeconds)
	}
}

// agrees checks that the accounting of all guests is within a quarter of the GPU's own.
func agrees(t *testing.T, before, after map[string]measured) error {
	t.Helper()
	var err error
	for name, m := range after {
		b := before[name]
		if b.gpu != m.gpu {
			t.Errorf("%s was on %s and is on %s", name, b.gpu, m.gpu)
		}
		accounted, own := m.accounted-b.accounted, m.own-b.own
		t.Logf("%s on %s: accounted %.3f s, by the GPU %.3f s", name, m.gpu, accounted, own)
		// Within what two busy processors leave of five percent.
		if math.Abs(accounted-own) > 0.25*own {
			err = errors.Join(err, fmt.Errorf("%s: accounted %.3f s, by the GPU itself %.3f s", name, accounted, own))
		}
	}
	return err
}

// measured is a guest's GPU time, by accounting and by the GPU's own clock.
type measured struct {
	gpu            string
	accounted, own float64
}

func measure(t *testing.T, h *host.Host) map[string]measured {
	t.Helper()
	vms, err := h.Client.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]measured)
	for _, v := range vms {
		m := measured{gpu: v.GPU, accounted: v.GPUSeconds}
		if v.GPUSecondsOwn != nil {
			m.own = *v.GPUSecondsOwn
		}
		all[v.Name] = m
	}
	return all
}
