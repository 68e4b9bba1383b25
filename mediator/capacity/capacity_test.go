package capacity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
)

// TestOffers has guests of two engines and of none on one GPU: an engine's scheduler counts its own.
func TestOffers(t *testing.T) {
	gpus := []api.GPU{{Name: "gpu0", MemoryBytes: 16 << 30, Healthy: true}}
	guest := func(engine string, weight float64) api.VM {
		return api.VM{Name: "vm" + engine, GPU: "gpu0", Engine: engine, Weight: weight, MemoryLimitBytes: 1 << 30}
	}
	vms := []api.VM{guest("nova", 10), guest("kubernetes", 20), guest("", 30)}
	for engine, shares := range map[string]int{"nova": 50, "kubernetes": 40, "another": 60} {
		memory := 2048
		if engine == "another" {
			memory = 3072
		}
		want := []Offer{{GPU: "gpu0", Share: Amount{100, shares}, Memory: Amount{16384, memory}}}
		if diff := cmp.Diff(want, Offers(gpus, vms, engine, Keep{})); diff != "" {
			t.Errorf("for %s (-want +got):\n%s", engine, diff)
		}
	}
}
