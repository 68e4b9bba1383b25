package nova

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

// EngineNova is the engine of guests that Nova placed, in the daemon's API. What they have is an
// allocation in Placement, and so not reserved.
const EngineNova = "nova"

// Amount is what a GPU has of a resource class.
type Amount struct{ Total, Reserved int }

// Offer is what a host wants Placement to have of one GPU.
type Offer struct {
	GPU           string
	Share, Memory Amount // Memory is in MiB
	Traits        []string
	// Closed says why everything is reserved; "" if not.
	Closed string
}

// Keep is what of each GPU is never offered.
type Keep struct {
	Share     int
	MemoryMiB int
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

// Offers returns what to offer of each GPU, by name: its time and memory without what is given to
// guests that Nova did not place. Everything of a GPU that takes no guests is reserved.
func Offers(gpus []api.GPU, vms []api.VM, keep Keep) []Offer {
	offers := make([]Offer, 0, len(gpus))
	for i := range gpus {
		offers = append(offers, offer(&gpus[i], vms, keep))
	}
	slices.SortFunc(offers, func(a, b Offer) int { return strings.Compare(a.GPU, b.GPU) })
	return offers
}

func offer(g *api.GPU, vms []api.VM, keep Keep) Offer {
	o := Offer{GPU: g.Name, Traits: traits(g), Closed: closed(g)}
	o.Share = Amount{Total: Shares, Reserved: keep.Share}
	// An inventory has at least 1.
	o.Memory = Amount{Total: int(min(max(g.MemoryBytes>>20, 1), maxAmount)), Reserved: keep.MemoryMiB}
	var floating int
	for i := range vms {
		v := &vms[i]
		if v.GPU != g.Name || v.Engine == EngineNova || v.Lost != "" {
			continue
		}
		o.Share.Reserved = addUpTo(Shares, o.Share.Reserved, ShareOf(v))
		if memory := memoryOf(v, o.Memory.Total); v.Float {
			floating = addUpTo(o.Memory.Total, floating, memory)
		} else {
			o.Memory.Reserved = addUpTo(o.Memory.Total, o.Memory.Reserved, memory)
		}
	}
	// Guests that float may have contexts here that belong elsewhere, and the other way round.
	o.Memory.Reserved = addUpTo(o.Memory.Total, o.Memory.Reserved, max(floating, ceilMiB(g.GrantedBytes)))
	if o.Closed != "" {
		o.Share.Reserved, o.Memory.Reserved = o.Share.Total, o.Memory.Total
	}
	o.Share.Reserved = min(o.Share.Reserved, o.Share.Total)
	o.Memory.Reserved = min(o.Memory.Reserved, o.Memory.Total)
	return o
}

// addUpTo returns a+b, or limit if that is less. Neither is negative.
func addUpTo(limit, a, b int) int { return min(a, limit) + min(b, limit-min(a, limit)) }

// closed says why a GPU takes no new guests; "" if it does.
func closed(g *api.GPU) string {
	switch {
	case !g.Healthy:
		return "it is not healthy: " + cmp.Or(g.Problem, "the daemon does not say why")
	case g.Draining:
		return "it is being drained"
	case g.Cordoned:
		return "it is cordoned"
	case g.MemoryBytes < 1<<20:
		return "how much memory it has is not known"
	}
	return ""
}

// ShareOf returns what a guest takes of a GPU's shares. Guests of Nova have their shares as weights, as
// guarantees, or both, so another's weight takes as many; a cap bounds that, and a guarantee is given
// in any case.
func ShareOf(v *api.VM) int {
	share := percent(v.Weight / Shares)
	if v.Cap > 0 {
		share = min(share, percent(v.Cap))
	}
	return max(share, percent(v.Guarantee))
}

// Covers reports whether a guest as it is takes at least what it takes as it is to be.
func Covers(is, willBe *api.VM) bool {
	const all = maxAmount // a guest without a limit takes everything
	return is.GPU == willBe.GPU && ShareOf(is) >= ShareOf(willBe) && memoryOf(is, all) >= memoryOf(willBe, all)
}

// percent returns the hundredths that a part takes up, at most [Shares].
func percent(part float64) int {
	const rounding = 1e-9 // of parts that were given in decimals
	if !(part > 0) {
		return 0
	}
	return int(min(math.Ceil(part*100-rounding), Shares))
}

// memoryOf returns the memory that a guest which Nova did not place may take, in MiB: all of the
// GPU's if it has no limit.
func memoryOf(v *api.VM, total int) int {
	if v.MemoryLimitBytes == 0 {
		return total
	}
	return min(ceilMiB(v.MemoryLimitBytes), total)
}

func ceilMiB(bytes uint64) int {
	const mib = 1 << 20
	return int(min(bytes/mib+min(bytes%mib, 1), maxAmount))
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

// String describes an offer in one line.
func (o Offer) String() string {
	s := fmt.Sprintf("%s: %d of %d shares and %d of %d MiB reserved", o.GPU, o.Share.Reserved, o.Share.Total, o.Memory.Reserved, o.Memory.Total)
	if o.Closed != "" {
		s += ", because " + o.Closed
	}
	return s
}
