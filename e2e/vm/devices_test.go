package vm

import (
	"fmt"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// TestSeveralDevices gives a VM three virtual GPUs, two on one GPU and one on another, and works on
// all of them at the same time: on the first with every kernel of the corpus.
func TestSeveralDevices(t *testing.T) {
	h := withTimeout(host.StartGPUs(t, 2, "dfq", slowGPU...))
	gpus := []api.VM{
		h.NewVM(api.VMSpec{Name: "first", GPU: "gpu0"}),
		h.NewVM(api.VMSpec{Name: "second", GPU: "gpu0"}),
		h.NewVM(api.VMSpec{Name: "third", GPU: "gpu1"}),
	}
	m := boot(t, h, qemu.Options{Name: "several"}, gpus...)
	m.ready()
	workers := []*worker{m.run(corpusPlan(m.address(id(0))))}
	for i, g := range gpus[1:] {
		workers = append(workers, m.begin(g.Name, m.address(id(1+i)), short))
	}
	for i, w := range workers {
		w.goesOn()
		v := h.VM(gpus[i].Name)
		if v.GPU != gpus[i].GPU || v.Kernels == 0 || v.Errors != 0 || v.GPUSecondsOwn == nil || *v.GPUSecondsOwn == 0 {
			t.Errorf("%s, at work on %s: %+v", v.Name, gpus[i].GPU, v)
		}
	}
	h.Until("every kernel of the corpus", func() error {
		workers[0].check()
		if done, all := workers[0].last().Cases, len(corpus.All()); done < uint64(all) {
			return fmt.Errorf("%d of %d", done, all)
		}
		return nil
	})
	// The end of one leaves the others running.
	workers[0].end()
	workers[1].goesOn()
	workers[2].goesOn()
	m.works(m.address(id(0)))
	workers[1].end()
	workers[2].end()
}

// corpusPlan is to run every kernel of the corpus, one after the other.
func corpusPlan(address string) workload.Plan {
	p := workload.Plan{Name: "corpus", PCI: address, Workers: 1, Channels: 1, Seed: 1}
	for _, k := range corpus.All() {
		p.Work = append(p.Work, workload.Work{Kernel: k.Name, Size: corpus.Trivial.String(), Repeat: 1})
	}
	return p
}
