package nova

import (
	"slices"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// EngineNova is the engine of guests that Nova placed, in the daemon's API. Their shares are
// allocations in Placement, and so not reserved.
const EngineNova = "nova"

// Offer is what a host wants Placement to have of one GPU.
type Offer struct {
	capacity.Offer
	Traits []string
}

// The traits of a GPU. A model's is [TraitModel] and its name.
const (
	TraitVGPUD        = "CUSTOM_VGPUD"
	TraitSoftGPU      = "CUSTOM_VGPUD_SOFTGPU"
	TraitNVIDIA       = "CUSTOM_VGPUD_NVIDIA"
	TraitPreemption   = "CUSTOM_VGPUD_PREEMPTION"
	TraitEventKernels = "CUSTOM_VGPUD_EVENT_KERNELS"
	TraitModel        = "CUSTOM_VGPUD_MODEL_"
)

// maxTrait is the longest name of a trait that Placement takes.
const maxTrait = 255

// Offers returns what to offer of each GPU, by name: see [capacity.Offers].
func Offers(gpus []api.GPU, vms []api.VM, keep capacity.Keep) []Offer {
	var offers []Offer
	for _, o := range capacity.Offers(gpus, vms, EngineNova, keep) {
		i := slices.IndexFunc(gpus, func(g api.GPU) bool { return g.Name == o.GPU })
		offers = append(offers, Offer{o, traits(&gpus[i])})
	}
	return offers
}

// traits returns a GPU's traits, sorted.
func traits(g *api.GPU) []string {
	all := []string{TraitVGPUD}
	switch g.Kind {
	case "soft":
		all = append(all, TraitSoftGPU)
	case "nvidia":
		all = append(all, TraitNVIDIA)
	}
	if g.ByKernel {
		all = append(all, TraitPreemption)
	}
	if g.EventKernels {
		all = append(all, TraitEventKernels)
	}
	if model := traitName(g.Model); model != "" {
		all = append(all, TraitModel+model)
	}
	slices.Sort(all)
	return all
}

// traitName returns a text as a part of a trait's name: upper-case letters, digits and underscores.
func traitName(s string) string {
	var b strings.Builder
	for _, r := range strings.ToUpper(s) {
		switch {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
		if b.Len() == maxTrait-len(TraitModel) {
			break
		}
	}
	return strings.TrimRight(b.String(), "_")
}
