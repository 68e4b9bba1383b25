package dispatch

import (
	"maps"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/callable"
	"vgpud/ptx/variables"
)

// TestCorpus makes dispatchers of all kernels of the corpus, which the GPU in software loads, but for
// those that are refused.
func TestCorpus(t *testing.T) {
	b := newBench(t)
	made, bound, refused := 0, 0, map[string]string{}
	for _, k := range corpus.All() {
		m, err := ptx.Parse(k.PTX(corpus.SM80))
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := b.ctx.LoadModule([]byte(k.PTX(corpus.SM80)))
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range m.Items {
			entry, ok := it.(*ptx.Func)
			if !ok || !entry.Entry {
				continue
			}
			f, err := loaded.Function(entry.Name)
			if err != nil {
				t.Fatal(err)
			}
			used := 0
			d, err := Build(m, &Kernel{
				Number: 1, Name: entry.Name, Grid: gpu.Dim3{X: 2, Y: 1, Z: 1}, Block: gpu.Dim3{X: 64, Y: 1, Z: 1},
				ParamBytes: int(f.Attributes().ParamBytes), Entries: 4,
			}, func(name string) (variables.Place, error) {
				used++
				p, n, err := loaded.Global(name)
				return variables.Place{Address: uint64(p), Bytes: n}, err
			})
			if err != nil {
				refused[entry.Name], _, _ = strings.Cut(err.Error(), ":")
				continue
			}
			made++
			if used > 0 {
				bound++
			}
			module, err := b.ctx.LoadModule([]byte(d.PTX))
			if err != nil {
				t.Errorf("%s: %v\n%s", entry.Name, err, d.PTX)
				continue
			}
			if err := module.Unload(); err != nil {
				t.Error(err)
			}
		}
		if err := loaded.Unload(); err != nil {
			t.Fatal(err)
		}
	}
	barrier, warp := callable.Barrier.String(), callable.WarpAfterReturn.String()
	want := map[string]string{
		"barrier_named": barrier, "barrier_last_block": barrier, "early_return": barrier, "early_block": barrier,
		"spmv_vector": warp, "warp_sum": warp, "warp_exchange": warp, "call_indirect": variables.FunctionAddress.String(),
		"say": abi.EventReasonPrints.String(),
	}
	if !maps.Equal(refused, want) {
		t.Errorf("refused: %v, want %v", refused, want)
	}
	t.Logf("%d dispatchers, %d of them with variables", made, bound)
	if made < 75 || bound < 8 {
		t.Errorf("%d dispatchers, %d of them with variables", made, bound)
	}
}
