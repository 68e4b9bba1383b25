package system

import (
	"fmt"
	"testing"

	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// others returns the part of each GPU's time that the guest there had in an interval that does not float.
func (h *taskHost) others(names ...string) []float64 {
	h.t.Helper()
	const enough = 0.25
	sample := func() (busy, used []float64) {
		gpus, err := h.Client.GPUs(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		for i, name := range names {
			busy, used = append(busy, gpus[i].BusySeconds), append(used, h.VM(name).GPUSeconds)
		}
		return busy, used
	}
	busy0, used0 := sample()
	parts := make([]float64, len(names))
	h.Until("time of the GPUs", func() error {
		busy, used := sample()
		for i := range parts {
			if busy[i]-busy0[i] < enough {
				return fmt.Errorf("%.3f s of GPU %d, want %v", busy[i]-busy0[i], i, enough)
			}
			parts[i] = (used[i] - used0[i]) / (busy[i] - busy0[i])
		}
		return nil
	})
	return parts
}

// TestTaskGuarantees: a context goes only where its guest's guarantee is free, and the guarantee holds
// there, whatever the weights.
func TestTaskGuarantees(t *testing.T) {
	h := newTaskHost(t, 2)
	h.Timeout = soon
	h.NewGuest(api.VMSpec{Name: "pinned", GPU: "gpu1", Guarantee: 0.6, MemoryLimitBytes: 100 * mib})
	a, b := h.guest(api.VMSpec{Name: "a", Guarantee: 0.5}), h.guest(api.VMSpec{Name: "b", Guarantee: 0.6})
	const iterations = 150
	busy(t, h.Host, api.VMSpec{Name: "heavy", GPU: "gpu0", Weight: 8, MemoryLimitBytes: 100 * mib}, iterations)
	first := h.begin(a, 100*mib)
	if got := h.gpuOf(first); got != 0 {
		t.Errorf("on GPU %d, of which 0.6 is guaranteed to another", got)
	}
	work := keepBusy(t, "a", first, iterations)
	h.Until("the guarantee to hold", func() error {
		if got := h.others("heavy"); got[0] > 0.6 {
			return fmt.Errorf("beside a guarantee of 0.5 another guest had %.3f of the GPU", got[0])
		}
		return nil
	})
	w := h.submit(b, 100*mib)
	h.staysWaiting("b", abi.WaitQueue)
	work.stop()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	gpu, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	if got := h.gpuOf(gpu); got != 0 {
		t.Errorf("on GPU %d, of which 0.6 is guaranteed to another", got)
	}
}
