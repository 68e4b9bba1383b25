// Package capacity works out what the GPUs of a host have to give, for the schedulers of engines over
// many hosts: each GPU's time in hundredths and its memory, without what guests have that the engine
// did not place. It does no I/O and has no clock. [vgpud/mediator/nova] tells Placement of it.
package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

// Shares is the number of shares of a GPU: hundredths of its time.
const Shares = 100

// MaxAmount is the largest amount that is offered: the largest number in Placement's database.
const MaxAmount = math.MaxInt32

// Amount is what a GPU has of shares or of memory.
type Amount struct{ Total, Reserved int }

// Free returns what is not reserved.
func (a Amount) Free() int { return a.Total - a.Reserved }

// Offer is what an engine's scheduler may give of one GPU.
type Offer struct {
	GPU           string
	Share, Memory Amount // Memory is in MiB
	// Closed says why everything is reserved; "" if not.
	Closed string
}

// Keep is what of each GPU is never offered.
type Keep struct {
	Share     int
	MemoryMiB int
}

// Offers returns what to offer of each GPU to an engine's scheduler, by name: its time and memory
// without what is given to guests that the engine did not place. Everything of a GPU that takes no
// guests is reserved.
func Offers(gpus []api.GPU, vms []api.VM, engine string, keep Keep) []Offer {
	offers := make([]Offer, 0, len(gpus))
	for i := range gpus {
		offers = append(offers, offer(&gpus[i], vms, engine, keep))
	}
	slices.SortFunc(offers, func(a, b Offer) int { return strings.Compare(a.GPU, b.GPU) })
	return offers
}

func offer(g *api.GPU, vms []api.VM, engine string, keep Keep) Offer {
	o := Offer{GPU: g.Name, Closed: closed(g)}
	o.Share = Amount{Total: Shares, Reserved: keep.Share}
	// An inventory has at least 1.
	o.Memory = Amount{Total: int(min(max(g.MemoryBytes>>20, 1), MaxAmount)), Reserved: keep.MemoryMiB}
	var floating int
	for i := range vms {
		v := &vms[i]
		if v.GPU != g.Name || v.Engine == engine || v.Lost != "" {
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

// ShareOf returns what a guest takes of a GPU's shares. Guests that an engine placed have their shares as
// weights, as guarantees, or both, so another's weight takes as many; a cap bounds that, and a guarantee
// is given in any case.
func ShareOf(v *api.VM) int {
	share := percent(v.Weight / Shares)
	if v.Cap > 0 {
		share = min(share, percent(v.Cap))
	}
	return max(share, percent(v.Guarantee))
}

// Covers reports whether a guest as it is takes at least what it takes as it is to be.
func Covers(is, willBe *api.VM) bool {
	const all = MaxAmount // a guest without a limit takes everything
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

// memoryOf returns the memory that a guest which the engine did not place may take, in MiB: all of the
// GPU's if it has no limit.
func memoryOf(v *api.VM, total int) int {
	if v.MemoryLimitBytes == 0 {
		return total
	}
	return min(ceilMiB(v.MemoryLimitBytes), total)
}

func ceilMiB(bytes uint64) int {
	const mib = 1 << 20
	return int(min(bytes/mib+min(bytes%mib, 1), MaxAmount))
}

// String describes an offer in one line.
func (o Offer) String() string {
	s := fmt.Sprintf("%s: %d of %d shares and %d of %d MiB reserved", o.GPU, o.Share.Reserved, o.Share.Total, o.Memory.Reserved, o.Memory.Total)
	if o.Closed != "" {
		s += ", because " + o.Closed
	}
	return s
}
