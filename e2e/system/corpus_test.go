package system

import (
	"sync"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// TestCorpus runs every kernel of the corpus, as compiled for each architecture, through a guest of
// its own, and checks every result. The guests share the GPU meanwhile.
func TestCorpus(t *testing.T) {
	h := host.Start(t, "dfq")
	var wg sync.WaitGroup
	for _, arch := range corpus.Arches() {
		gpu := newContext(t, h, api.VMSpec{Name: string(arch)})
		wg.Go(func() {
			for _, k := range corpus.All() {
				if err := runCase(t, gpu, k, arch); err != nil {
					t.Errorf("%s: %v", arch, err)
				}
			}
		})
	}
	wg.Wait()
	for _, arch := range corpus.Arches() {
		if v := h.VM(string(arch)); v.Errors != 0 || v.Kernels < uint64(len(corpus.All())) {
			t.Errorf("%s: %d kernels and %d errors by the API", arch, v.Kernels, v.Errors)
		}
	}
}

// runCase runs one kernel and checks its results and its output.
func runCase(t *testing.T, gpu *driver.Context, k corpus.Kernel, arch corpus.Arch) error {
	ctx := t.Context()
	l, err := workload.NewLoad(ctx, gpu, k.PTX(arch), k.Case(corpus.Trivial, 42))
	if err != nil {
		return err
	}
	if err := l.Run(ctx, gpu.Own()); err != nil {
		return err
	}
	printed, err := gpu.Printed(ctx)
	if err != nil {
		return err
	}
	if err := l.Case.CheckPrinted(printed); err != nil {
		return err
	}
	return l.Close(ctx)
}
