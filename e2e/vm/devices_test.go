package vm

import (
	"testing"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// TestSeveralDevices gives a VM three virtual GPUs, two on one GPU and one on
// another, and works on all of them at a time.
func TestSeveralDevices(t *testing.T) {
	h := host.StartGPUs(t, 2, "dfq", slow...)
	gpus := []api.VM{
		h.NewVM(api.VMSpec{Name: "first", GPU: "gpu0"}),
		h.NewVM(api.VMSpec{Name: "second", GPU: "gpu0"}),
		h.NewVM(api.VMSpec{Name: "third", GPU: "gpu1"}),
	}
	m := boot(t, h, qemu.Options{Name: "several"}, gpus...)
	m.ready()
	var workers []*worker
	for i, g := range gpus {
		workers = append(workers, m.begin(g.Name, m.address(id(i)), short))
	}
	for i, w := range workers {
		w.goesOn()
		v := h.VM(gpus[i].Name)
		if v.GPU != gpus[i].GPU || v.Kernels == 0 || v.Errors != 0 || v.GPUSecondsOwn == nil || *v.GPUSecondsOwn == 0 {
			t.Errorf("%s, at work on %s: %+v", v.Name, gpus[i].GPU, v)
		}
	}
	// One that ends leaves the others be.
	workers[0].end()
	workers[1].goesOn()
	workers[2].goesOn()
	m.works(m.address(id(0)))
	workers[1].end()
	workers[2].end()
}
