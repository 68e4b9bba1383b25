package nova

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

const node = "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"

var host = Host{Node: node, Name: "host1"}

// gpu returns a healthy GPU in software with 16 GiB.
func gpu(name string, change ...func(*api.GPU)) api.GPU {
	g := api.GPU{Name: name, Kind: "soft", Model: "Soft GPU", MemoryBytes: 16 << 30, Healthy: true}
	for _, f := range change {
		f(&g)
	}
	return g
}

func TestOffers(t *testing.T) {
	local := func(change func(*api.VM)) []api.VM {
		v := api.VM{Name: "web", GPU: "gpu0", Weight: 1, MemoryLimitBytes: 1 << 30}
		change(&v)
		return []api.VM{v}
	}
	traits := []string{"CUSTOM_VGPUD", "CUSTOM_VGPUD_MODEL_SOFT_GPU", "CUSTOM_VGPUD_SOFTGPU"}
	for name, test := range map[string]struct {
		gpu           api.GPU
		vms           []api.VM
		keep          capacity.Keep
		share, memory int // reserved
		closed        string
	}{
		"empty":            {gpu: gpu("gpu0")},
		"weight":           {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Weight = 2.5 }), share: 3, memory: 1024},
		"guarantee":        {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Guarantee = 0.3 }), share: 30, memory: 1024},
		"cap":              {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Weight, v.Cap = 50, 0.1 }), share: 10, memory: 1024},
		"heavy":            {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Weight = 1e6 }), share: 100, memory: 1024},
		"no limit":         {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.MemoryLimitBytes = 0 }), share: 1, memory: 16384},
		"part of a MiB":    {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.MemoryLimitBytes = 1<<30 + 1 }), share: 1, memory: 1025},
		"more than it has": {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.MemoryLimitBytes = 1 << 50 }), share: 1, memory: 16384},
		"Nova's":           {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Engine = EngineNova })},
		"elsewhere":        {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.GPU = "gpu1" })},
		"lost":             {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Lost = "it died" })},
		"floats":           {gpu: gpu("gpu0"), vms: local(func(v *api.VM) { v.Float = true }), share: 1, memory: 1024},
		"contexts float here": {gpu: gpu("gpu0", func(g *api.GPU) { g.GrantedBytes = 3 << 30 }),
			vms: local(func(v *api.VM) { v.Float = true }), share: 1, memory: 3072},
		"kept":     {gpu: gpu("gpu0"), keep: capacity.Keep{Share: 10, MemoryMiB: 512}, share: 10, memory: 512},
		"all kept": {gpu: gpu("gpu0"), vms: local(func(*api.VM) {}), keep: capacity.Keep{Share: 100, MemoryMiB: 1 << 20}, share: 100, memory: 16384},
		"sick": {gpu: gpu("gpu0", func(g *api.GPU) { g.Healthy, g.Problem = false, "it fell off the bus" }), share: 100, memory: 16384,
			closed: "it is not healthy: it fell off the bus"},
		"cordoned": {gpu: gpu("gpu0", func(g *api.GPU) { g.Cordoned = true }), share: 100, memory: 16384, closed: "it is cordoned"},
		"draining": {gpu: gpu("gpu0", func(g *api.GPU) { g.Cordoned, g.Draining = true, true }), share: 100, memory: 16384, closed: "it is being drained"},
	} {
		t.Run(name, func(t *testing.T) {
			want := []Offer{{capacity.Offer{GPU: "gpu0", Share: capacity.Amount{Total: 100, Reserved: test.share}, Memory: capacity.Amount{Total: 16384, Reserved: test.memory}, Closed: test.closed}, traits}}
			if diff := cmp.Diff(want, Offers([]api.GPU{test.gpu}, test.vms, test.keep)); diff != "" {
				t.Errorf("Offers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraits(t *testing.T) {
	g := gpu("gpu0", func(g *api.GPU) {
		g.Kind, g.Model, g.ByKernel, g.EventKernels = "nvidia", "NVIDIA H100 80GB HBM3 (é)", true, true
	})
	want := []string{"CUSTOM_VGPUD", "CUSTOM_VGPUD_EVENT_KERNELS", "CUSTOM_VGPUD_MODEL_NVIDIA_H100_80GB_HBM3", "CUSTOM_VGPUD_NVIDIA", "CUSTOM_VGPUD_PREEMPTION"}
	if diff := cmp.Diff(want, traits(&g)); diff != "" {
		t.Errorf("traits (-want +got):\n%s", diff)
	}
	if got := TraitModel + traitName(strings.Repeat("x-", 400)); len(got) > maxTrait {
		t.Errorf("a trait of %d characters: %s", len(got), got)
	}
}

// TestOwnGPU: a provider is ours only if its UUID follows from its parent and its name.
func TestOwnGPU(t *testing.T) {
	ours := func(gpu string, long bool) Provider {
		return Provider{UUID: ProviderUUID(node, gpu), Name: ProviderName(host, gpu, long), Parent: node}
	}
	for _, gpu := range []string{"gpu0", "a_vgpud_b", "gpu_1", "x_" + ProviderUUID(node, "x")[:8]} {
		for _, long := range []bool{false, true} {
			p := ours(gpu, long)
			if got, ok := OwnGPU(p); got != gpu || !ok {
				t.Errorf("OwnGPU(%s) = %q, %v, want %q", p.Name, got, ok, gpu)
			}
			p.Name = "renamed-host" + separator + gpu
			if got, ok := OwnGPU(p); got != gpu || !ok {
				t.Errorf("OwnGPU of a host that was renamed = %q, %v, want %q", got, ok, gpu)
			}
		}
	}
	for name, change := range map[string]func(*Provider){
		"another UUID":   func(p *Provider) { p.UUID = ProviderUUID(node, "gpu1") },
		"another parent": func(p *Provider) { p.Parent = ProviderUUID(node, "gpu1") },
		"another name":   func(p *Provider) { p.Name = "host1_pci_0000:00:02.0" },
		"a root":         func(p *Provider) { p.Parent = "" },
	} {
		p := ours("gpu0", false)
		change(&p)
		if gpu, ok := OwnGPU(p); ok {
			t.Errorf("%s: OwnGPU(%+v) = %q", name, p, gpu)
		}
	}
	if n := len(ProviderName(Host{Node: node, Name: strings.Repeat("h", 300)}, "gpu0", true)); n > maxName {
		t.Errorf("a name of %d characters", n)
	}
}

func TestPlanSteps(t *testing.T) {
	offers := Offers([]api.GPU{gpu("gpu0")}, nil, capacity.Keep{})
	s := &State{}
	var kinds []Kind
	for generation := range 10 {
		rs := Plan(host, offers, s, false)
		if len(rs) == 0 {
			break
		}
		kinds = append(kinds, rs[0].Kind)
		s.Done(rs[0], generation)
	}
	if diff := cmp.Diff([]Kind{Create, SetTraits, SetInventories}, kinds); diff != "" {
		t.Errorf("requests for a new GPU (-want +got):\n%s", diff)
	}
	// A sick GPU is closed before anything else.
	offers = Offers([]api.GPU{gpu("gpu0", func(g *api.GPU) { g.Healthy, g.ByKernel = false, true })}, nil, capacity.Keep{})
	if rs := Plan(host, offers, s, false); len(rs) != 1 || rs[0].Kind != SetInventories {
		t.Errorf("a GPU that is sick and has a new trait: %v", rs)
	}
}

// TestPlanKeepsOperatorsOwn: what an operator adds to a GPU's provider stays.
func TestPlanKeepsOperatorsOwn(t *testing.T) {
	id := ProviderUUID(node, "gpu0")
	gold := Inventory{Total: 5, MinUnit: 1, MaxUnit: 5, StepSize: 1, AllocationRatio: 1}
	s := &State{Own: map[string]Provider{id: {
		UUID: id, Parent: node, Name: ProviderName(host, "gpu0", false), Generation: 7,
		Traits: []string{"CUSTOM_VGPUD_OLD", "CUSTOM_RACK_7"}, Inventories: map[string]Inventory{"CUSTOM_GOLD": gold, "CUSTOM_VGPUD_OLD": gold},
	}}}
	offers := Offers([]api.GPU{gpu("gpu0")}, nil, capacity.Keep{})
	for generation := range 10 {
		for _, r := range Plan(host, offers, s, false) {
			s.Done(r, 8+generation)
		}
	}
	full := func(n int) Inventory {
		return Inventory{Total: n, MinUnit: 1, MaxUnit: n, StepSize: 1, AllocationRatio: 1}
	}
	want := Provider{
		UUID: id, Parent: node, Name: "host1_vgpud_gpu0", Generation: 9,
		Traits:      []string{"CUSTOM_RACK_7", "CUSTOM_VGPUD", "CUSTOM_VGPUD_MODEL_SOFT_GPU", "CUSTOM_VGPUD_SOFTGPU"},
		Inventories: map[string]Inventory{"CUSTOM_GOLD": gold, ClassShare: full(100), ClassMemory: full(16384)},
	}
	if diff := cmp.Diff(want, s.Own[id]); diff != "" {
		t.Errorf("provider (-want +got):\n%s", diff)
	}
}

func TestGrants(t *testing.T) {
	gpu0, gpu1 := ProviderUUID(node, "gpu0"), ProviderUUID(node, "gpu1")
	other := "1c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"
	otherGPU := ProviderUUID(other, "gpu0")
	nova := map[string]int{"VCPU": 1, "MEMORY_MB": 512}
	for name, test := range map[string]struct {
		a    Allocation
		want []Grant
		err  string // a part
	}{
		"none":     {a: Allocation{node: nova}},
		"nothing":  {a: Allocation{}},
		"one":      {a: Allocation{node: nova, gpu0: {ClassShare: 60, ClassMemory: 2048}}, want: []Grant{{"gpu0", 60, 2048}}},
		"two GPUs": {a: Allocation{gpu1: {ClassShare: 1, ClassMemory: 1}, gpu0: {ClassShare: 100, ClassMemory: 3}}, want: []Grant{{"gpu0", 100, 3}, {"gpu1", 1, 1}}},

		"evacuated":           {a: Allocation{node: nova, gpu0: {ClassShare: 60, ClassMemory: 2048}, other: nova, otherGPU: {ClassShare: 60, ClassMemory: 2048}}, want: []Grant{{"gpu0", 60, 2048}}},
		"evacuated elsewhere": {a: Allocation{node: nova, other: nova, otherGPU: {ClassShare: 60, ClassMemory: 2048}}, err: "none of this host's GPUs"},
		"one of two is gone":  {a: Allocation{node: nova, gpu0: {ClassShare: 60, ClassMemory: 2048}, otherGPU: {ClassShare: 60, ClassMemory: 2048}}, err: "none of this host's GPUs"},

		"another host's":       {a: Allocation{ProviderUUID(gpu0, "gpu0"): {ClassShare: 60, ClassMemory: 2048}}, err: "none of this host's GPUs"},
		"on the compute node":  {a: Allocation{node: {ClassShare: 60, ClassMemory: 2048}}, err: "none of this host's GPUs"},
		"share without memory": {a: Allocation{gpu0: {ClassShare: 60}}, err: "a share of GPU gpu0 but no memory"},
		"memory without share": {a: Allocation{gpu0: {ClassMemory: 60}}, err: "memory of GPU gpu0 but no share"},
		"apart":                {a: Allocation{gpu0: {ClassShare: 60}, gpu1: {ClassMemory: 60}}, err: "in one group"},
		"no shares":            {a: Allocation{gpu0: {ClassShare: 0, ClassMemory: 1}}, err: "0 shares"},
		"101 shares":           {a: Allocation{gpu0: {ClassShare: 101, ClassMemory: 1}}, err: "101 shares"},
		"negative":             {a: Allocation{gpu0: {ClassShare: -1, ClassMemory: 1}}, err: "-1 shares"},
		"no memory":            {a: Allocation{gpu0: {ClassShare: 1, ClassMemory: 0}}, err: "0 MiB"},
		"huge":                 {a: Allocation{gpu0: {ClassShare: 1, ClassMemory: 1<<30 + 1}}, err: "1073741825 MiB"},
		"of a later version":   {a: Allocation{gpu0: {ClassShare: 1, ClassMemory: 1, "CUSTOM_VGPUD_ENGINES": 1}}, err: "CUSTOM_VGPUD_ENGINES"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Grants(test.a, node, []string{"gpu0", "gpu1"})
			if test.err == "" {
				if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
					t.Errorf("Grants: %v (-want +got):\n%s", err, diff)
				}
				return
			}
			if !errors.Is(err, ErrNotGranted) || !strings.Contains(err.Error(), test.err) || got != nil {
				t.Errorf("Grants: %v, %v, want an error with %q", got, err, test.err)
			}
		})
	}
}

func anyGPU(t *rapid.T, name string) api.GPU {
	return api.GPU{
		Name: name, Kind: rapid.SampledFrom([]string{"soft", "nvidia", "other"}).Draw(t, "kind"), Model: rapid.String().Draw(t, "model"),
		MemoryBytes: rapid.Uint64().Draw(t, "memory"), GrantedBytes: rapid.Uint64().Draw(t, "granted"), Healthy: rapid.Bool().Draw(t, "healthy"), Cordoned: rapid.Bool().Draw(t, "cordoned"),
		ByKernel: rapid.Bool().Draw(t, "by kernel"), EventKernels: rapid.Bool().Draw(t, "event kernels"),
	}
}

func anyVM(t *rapid.T) api.VM {
	return api.VM{
		GPU: rapid.SampledFrom([]string{"gpu0", "gpu1"}).Draw(t, "gpu"), Weight: rapid.Float64().Draw(t, "weight"), Cap: rapid.Float64().Draw(t, "cap"), Guarantee: rapid.Float64().Draw(t, "guarantee"),
		MemoryLimitBytes: rapid.Uint64().Draw(t, "limit"), Float: rapid.Bool().Draw(t, "float"), Engine: rapid.SampledFrom([]string{"", "nova"}).Draw(t, "engine"),
	}
}

// TestOffersAreValid: whatever a daemon says, Placement could have what is offered, and a guest more
// never makes the host offer more.
func TestOffersAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := []api.GPU{anyGPU(t, "gpu0"), anyGPU(t, "gpu1")}
		vms := rapid.SliceOfN(rapid.Custom(anyVM), 0, 5).Draw(t, "vms")
		keep := capacity.Keep{Share: rapid.IntRange(0, 100).Draw(t, "keep"), MemoryMiB: rapid.IntRange(0, capacity.MaxAmount).Draw(t, "keep memory")}
		fewer := Offers(gpus, vms[:len(vms)/2], keep)
		for i, o := range Offers(gpus, vms, keep) {
			for what, a := range map[string]capacity.Amount{"share": o.Share, "memory": o.Memory} {
				if a.Total < 1 || a.Total > capacity.MaxAmount || a.Reserved < 0 || a.Reserved > a.Total {
					t.Fatalf("%s: %s %+v", o.GPU, what, a)
				}
			}
			if o.Share.Reserved < fewer[i].Share.Reserved || o.Memory.Reserved < fewer[i].Memory.Reserved {
				t.Fatalf("with fewer guests %+v, with more %+v", fewer[i], o)
			}
			for _, trait := range o.Traits {
				if len(trait) > maxTrait || strings.Trim(trait, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
					t.Fatalf("trait %q", trait)
				}
			}
		}
	})
}

// TestGrantsHoldOnlyWhatWasSold: whatever an allocation says, what is granted is of this host's GPUs
// and within their bounds.
func TestGrantsHoldOnlyWhatWasSold(t *testing.T) {
	ids := []string{node, ProviderUUID(node, "gpu0"), ProviderUUID(node, "gpu1"), ProviderUUID(ProviderUUID(node, "gpu0"), "gpu0")}
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.MapOf(rapid.SampledFrom([]string{ClassShare, ClassMemory, "VCPU", "CUSTOM_VGPUD_X"}), rapid.OneOf(rapid.Int(), rapid.IntRange(-1, 102)))
		a := Allocation(rapid.MapOf(rapid.SampledFrom(ids), amounts).Draw(t, "allocation"))
		grants, err := Grants(maps.Clone(a), node, []string{"gpu0", "gpu1"})
		if err != nil && !errors.Is(err, ErrNotGranted) {
			t.Fatal(err)
		}
		if err == nil && (len(grants) > 0) != a.Ours() {
			t.Fatalf("%v: %v", a, grants)
		}
		for _, g := range grants {
			has := a[ProviderUUID(node, g.GPU)]
			if g.Share != has[ClassShare] || g.MemoryMiB != has[ClassMemory] || g.Share < 1 || g.Share > 100 || g.MemoryMiB < 1 {
				t.Fatalf("%v grants %+v", a, g)
			}
		}
	})
}

func TestRequestsAreShown(t *testing.T) {
	var got []string
	s := &State{}
	for generation := range 9 {
		for _, r := range Plan(host, Offers([]api.GPU{gpu("gpu0")}, nil, capacity.Keep{}), s, true) {
			got = append(got, r.String())
			s.Done(r, generation)
		}
	}
	id := ProviderUUID(node, "gpu0")
	want := []string{
		fmt.Sprintf("create: GPU gpu0, provider %s host1_vgpud_gpu0", id),
		fmt.Sprintf("set traits: GPU gpu0, provider %s CUSTOM_VGPUD,CUSTOM_VGPUD_MODEL_SOFT_GPU,CUSTOM_VGPUD_SOFTGPU", id),
		fmt.Sprintf("set inventories: GPU gpu0, provider %s, CUSTOM_VGPUD_MEMORY_MIB 16384 with 0 reserved, CUSTOM_VGPUD_SHARE 100 with 0 reserved", id),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
