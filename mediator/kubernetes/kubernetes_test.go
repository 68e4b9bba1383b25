package kubernetes

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

const claim = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"

func gpu(name string, change ...func(*api.GPU)) api.GPU {
	g := api.GPU{Name: name, Kind: "soft", Model: "Soft", MemoryBytes: 16 << 30, Healthy: true, EventKernels: true}
	for _, c := range change {
		c(&g)
	}
	return g
}

func TestDevices(t *testing.T) {
	all := Device{Name: "gpu0", GPU: "gpu0", Share: 100, MemoryMiB: 16384, Kind: "soft", Model: "Soft", EventKernels: true}
	for name, test := range map[string]struct {
		gpu  api.GPU
		vms  []api.VM
		keep capacity.Keep
		want []Device
		left string // why nothing is offered
	}{
		"free": {gpu: gpu("gpu0"), want: []Device{all}},
		"a guest of a claim": {gpu: gpu("gpu0"), vms: []api.VM{{GPU: "gpu0", Weight: 60, Engine: Engine, MemoryLimitBytes: 1 << 30}},
			want: []Device{all}}, // the scheduler counts it
		"a guest that somebody made": {gpu: gpu("gpu0"), vms: []api.VM{{GPU: "gpu0", Weight: 10, MemoryLimitBytes: 1 << 30}},
			want: []Device{{Name: "gpu0", GPU: "gpu0", Share: 90, MemoryMiB: 15360, Kind: "soft", Model: "Soft", EventKernels: true}}},
		"an instance of Nova's": {gpu: gpu("gpu0"), vms: []api.VM{{GPU: "gpu0", Weight: 10, MemoryLimitBytes: 1 << 30, Engine: "nova"}},
			want: []Device{{Name: "gpu0", GPU: "gpu0", Share: 90, MemoryMiB: 15360, Kind: "soft", Model: "Soft", EventKernels: true}}},
		"kept": {gpu: gpu("gpu0"), keep: capacity.Keep{Share: 10, MemoryMiB: 384},
			want: []Device{{Name: "gpu0", GPU: "gpu0", Share: 90, MemoryMiB: 16000, Kind: "soft", Model: "Soft", EventKernels: true}}},
		"NVIDIA": {gpu: gpu("GPU_0", func(g *api.GPU) { g.Kind, g.Model, g.ByKernel = "nvidia", strings.Repeat("H", 80), true }),
			want: []Device{{Name: "gpu-fef71f248012cddf", GPU: "GPU_0", Share: 100, MemoryMiB: 16384, Kind: "nvidia", Model: strings.Repeat("H", 64), Preemption: true, EventKernels: true}}},
		"cordoned":  {gpu: gpu("gpu0", func(g *api.GPU) { g.Cordoned = true }), left: "it is cordoned"},
		"drained":   {gpu: gpu("gpu0", func(g *api.GPU) { g.Cordoned, g.Draining = true, true }), left: "it is being drained"},
		"sick":      {gpu: gpu("gpu0", func(g *api.GPU) { g.Healthy, g.Problem = false, "fell off" }), left: "it is not healthy: fell off"},
		"sold out":  {gpu: gpu("gpu0"), vms: []api.VM{{GPU: "gpu0", Weight: 100, MemoryLimitBytes: 1 << 30}}},
		"no memory": {gpu: gpu("gpu0"), vms: []api.VM{{GPU: "gpu0", Weight: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			devices, left := Devices([]api.GPU{test.gpu}, capacity.Offers([]api.GPU{test.gpu}, test.vms, Engine, test.keep))
			if diff := cmp.Diff(test.want, devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if (len(left) == 1) != (len(test.want) == 0) || len(left) == 1 && left[0].Closed != test.left {
				t.Errorf("not offered: %v, want one that says %q", left, test.left)
			}
		})
	}
}

// TestDeviceName holds names to what Kubernetes takes, and no two GPUs have the same.
func TestDeviceName(t *testing.T) {
	label := func(s string) bool {
		return s != "" && len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s[0] != '-' && s[len(s)-1] != '-'
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9_.-]{1,70}`), 2, 5, rapid.ID).Draw(t, "names")
		var seen []string
		for _, n := range names {
			d := DeviceName(n)
			if !label(d) || slices.Contains(seen, d) {
				t.Fatalf("GPU %q is device %q, beside %q", n, d, seen)
			}
			seen = append(seen, d)
		}
	})
}

func TestGuests(t *testing.T) {
	got, err := Guests(Claim{UID: claim, Namespace: "team", Results: []Result{{"gpu1", 25, 2048}, {DeviceName("GPU_0"), 100, 1}}}, []string{"GPU_0", "gpu1"})
	want := []api.VMSpec{
		{Name: "claim-" + claim + "-0", Project: "team", Engine: Engine, GPU: "gpu1", Weight: 25, Guarantee: 0.25, MemoryLimitBytes: 2 << 30},
		{Name: "claim-" + claim + "-1", Project: "team", Engine: Engine, GPU: "GPU_0", Weight: 100, Guarantee: 1, MemoryLimitBytes: 1 << 20},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestGuestsRefused has claims that no scheduler allocates.
func TestGuestsRefused(t *testing.T) {
	for name, c := range map[string]Claim{
		"a path":          {UID: "../../etc", Results: []Result{{"gpu0", 25, 1024}}},
		"another's GPU":   {UID: claim, Results: []Result{{"gpu7", 25, 1024}}},
		"no share":        {UID: claim, Results: []Result{{"gpu0", 0, 1024}}},
		"more than a GPU": {UID: claim, Results: []Result{{"gpu0", 101, 1024}}},
		"no memory":       {UID: claim, Results: []Result{{"gpu0", 25, 0}}},
		"negative":        {UID: claim, Results: []Result{{"gpu0", 25, -1}}},
		"huge":            {UID: claim, Results: []Result{{"gpu0", 25, math.MaxInt64}}},
		"many":            {UID: claim, Results: slices.Repeat([]Result{{"gpu0", 1, 1}}, 17)},
	} {
		if specs, err := Guests(c, []string{"gpu0"}); !errors.Is(err, ErrNotGranted) {
			t.Errorf("%s: %v, %v", name, specs, err)
		}
	}
}

func TestSame(t *testing.T) {
	specs, err := Guests(Claim{UID: claim, Results: []Result{{"gpu0", 25, 1024}}}, []string{"gpu0"})
	if err != nil {
		t.Fatal(err)
	}
	v := api.VM{Name: specs[0].Name, Engine: Engine, GPU: "gpu0", Weight: 25, Guarantee: 0.25, MemoryLimitBytes: 1 << 30}
	if err := Same(&v, &specs[0]); err != nil || !OfClaim(&v, claim) || OfClaim(&v, claim[:35]) {
		t.Errorf("%v, of the claim %v, of another %v", err, OfClaim(&v, claim), OfClaim(&v, claim[:35]))
	}
	for name, change := range map[string]func(*api.VM){
		"more":        func(v *api.VM) { v.Weight = 50 },
		"another GPU": func(v *api.VM) { v.GPU = "gpu1" },
		"lost":        func(v *api.VM) { v.Lost = "its process died" },
		"somebody's":  func(v *api.VM) { v.Engine = "" },
	} {
		v := v
		change(&v)
		if Same(&v, &specs[0]) == nil {
			t.Errorf("%s: is taken for the claim's", name)
		}
	}
}
